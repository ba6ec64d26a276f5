"""task=evaluate: the figures of the small pair's model card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import traces
from real_runner.settings import live_settings

DATA = Path(traces.__file__).parent / "data"


def run(config: dict[str, Any], log: Callable[[str], None]) -> None:
    """Print them, from the weights in `pair` and the recordings in `output`."""
    from real_runner.models.small.load import SHIPPED, load_pair
    from real_runner.training.evaluate import evaluate

    settings = live_settings(config)
    pair = load_pair(Path(settings.pair or SHIPPED))
    evaluate(pair, Path(settings.output or DATA), settings.size, log)
