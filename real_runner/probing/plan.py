"""What task=probe was asked, and the command that asks it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from real_runner.probing.grid import Grid
from real_runner.settings import ProbeKeys, live_settings

OUTPUT = "profiles"
# What a command line must repeat to measure the same again.
TOLD = (
    *("pair", "target", "drafter", "device", "dtype", "threads", "packing", "graphs"),
    "temperature",
)
GRID = ("batches", "packed_per_request", "prefixes", "prompt_tokens", "edge_tokens")
_UNTOLD = ("name", "keep_samples", "time_s", "finish")  # change no number


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """Checked settings; None is decided once the pair is loaded."""

    output: Path
    name: str | None
    grid: Grid
    edges: bool | None
    warmup: int
    repeats: int
    passes: int
    isotonic: bool
    keep_samples: bool
    seed: int
    temperature: float
    shape: str | None = None  # of a pair with random weights
    time_s: float | None = None  # of one call
    finish: bool = False  # write the profile of what is there

    def repeated(self) -> dict[str, Any]:
        """What decides the samples."""
        names = ("warmup", "repeats", "passes", "seed", "temperature")
        return {
            f"probe.{key}" if key != "temperature" else key: getattr(self, key) for key in names
        }

    def gridded(self, grid: Grid) -> dict[str, Any]:
        """The settings of a grid, by key."""
        return {f"probe.{key}": value for key, value in asdict(grid).items()}


def read_probe(config: Mapping[str, Any]) -> ProbePlan:
    """The plan of a configuration.

    Raises:
        InputError: the first key with a bad value.
    """
    live = live_settings(config)
    asked = live.probe
    grid = {name: getattr(asked, name) for name in GRID}
    own = {name: getattr(asked, name) for name in ProbeKeys.model_fields if name not in GRID}
    return ProbePlan(
        output=Path(live.output or OUTPUT), grid=Grid(**grid), temperature=live.temperature, **own
    )


def command_line(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """The words that measure the same again, wherever it is written; no paths."""
    words = ["python -m real_runner task=probe"]
    for key in TOLD:
        if config[key] != defaults[key]:
            words.append(f"{key}={_bare(config[key])}")
    for key, value in config["probe"].items():
        if value != defaults["probe"][key] and key not in _UNTOLD:
            words.append(f"probe.{key}={_word(value)}")
    return " ".join(words)


def _bare(value: Any) -> str:
    """A hub id or a setting as it is, a folder by its last name."""
    folder_name = isinstance(value, str) and Path(value).exists()
    return Path(value).name if folder_name else _word(value)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
