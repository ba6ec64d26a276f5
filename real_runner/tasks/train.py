"""task=train: train the small pair again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from real_runner.settings import folder, mapping, whole


def run(config: dict[str, Any], log: Callable[[str], None]) -> None:
    """Train into `output`."""
    from real_runner.training.task import TrainPlan, train

    sizes = {key: whole(f"train.{key}", v) for key, v in mapping("train", config["train"]).items()}
    train(TrainPlan(**sizes), Path(folder("output", config["output"]) or "trained_pair"), log)
