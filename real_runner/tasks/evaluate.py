"""task=evaluate: the figures of the small pair's model card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import traces
from real_runner.settings import SIZES, choice, folder

DATA = Path(traces.__file__).parent / "data"


def run(config: dict[str, Any], log: Callable[[str], None]) -> None:
    """Print them, from the weights in `pair` and the recordings in `output`."""
    from real_runner.models.small.load import SHIPPED, load_pair
    from real_runner.training.evaluate import evaluate

    pair = load_pair(Path(folder("pair", config["pair"]) or SHIPPED))
    size = choice("size", config["size"], SIZES)
    evaluate(pair, Path(folder("output", config["output"]) or DATA), size, log)
