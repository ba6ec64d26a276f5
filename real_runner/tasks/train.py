"""task=train: train the small pair again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from real_runner.settings import live_settings


def run(config: dict[str, Any], log: Callable[[str], None]) -> None:
    """Train into `output`."""
    from real_runner.training.task import train

    settings = live_settings(config)
    train(settings.train, Path(settings.output or "trained_pair"), log)
