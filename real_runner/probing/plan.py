"""What task=probe was asked, and the command that asks it again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from real_runner.probing.grid import Grid
from real_runner.probing.shapes import SHAPES
from real_runner.settings import choice, flag, folder, mapping, temperature_of, whole, wholes
from traces.common.errors import InputError

OUTPUT = "profiles"
KINDS = ("semi_autoregressive", "block")
MOST_PACKED = 8192  # root and nodes of one request
# What a command line must repeat to measure the same again.
TOLD = (
    *("pair", "target", "drafter", "device", "dtype", "threads", "packing", "graphs"),
    "temperature",
)
_KEYS = (
    *("name", "batches", "packed_per_request", "prefixes", "prompt_tokens", "edges", "edge_tokens"),
    *("warmup", "repeats", "passes", "isotonic", "keep_samples", "seed"),
    *("shape", "time_s", "finish"),
)
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
    node = mapping("probe", config["probe"])
    for key in node:
        choice("a key of probe", key, _KEYS)
    if config["target"] is None and config["pair"] is None:
        choice("drafter", config["drafter"], KINDS)
    flag("graphs", config["graphs"])
    counts = {key: whole(f"probe.{key}", node[key]) for key in ("warmup", "repeats", "passes")}
    if counts["passes"] > counts["repeats"]:
        raise InputError(
            f"probe.passes is {counts['passes']}; accepted: 1 to probe.repeats, {counts['repeats']}"
        )
    edges = node["edges"]
    return ProbePlan(
        output=Path(folder("output", config["output"]) or OUTPUT),
        name=_name(node["name"]),
        grid=_grid(node),
        edges=edges if edges is None else flag("probe.edges", edges),
        isotonic=flag("probe.isotonic", node["isotonic"]),
        keep_samples=flag("probe.keep_samples", node["keep_samples"]),
        seed=whole("probe.seed", node["seed"]),
        temperature=temperature_of("temperature", config["temperature"]),
        shape=_shape(config),
        time_s=_seconds(node["time_s"]),
        finish=flag("probe.finish", node["finish"]),
        **counts,
    )


def _shape(config: Mapping[str, Any]) -> str | None:
    """A pair's sizes; null: the pair that is loaded."""
    name = config["probe"]["shape"]
    if name is None:
        return None
    choice("probe.shape", name, tuple(SHAPES))
    for key in ("pair", "target"):
        if config[key] is not None:
            raise InputError(f"{key} is {config[key]!r} with probe.shape {name}; accepted: null")
    return name


def _seconds(value: Any) -> float | None:
    """Seconds of one call; null: no limit."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and math.isfinite(value) and value > 0):
        raise InputError(f"probe.time_s is {value!r}; accepted: seconds above 0, or null")
    return value


def _grid(node: Mapping[str, Any]) -> Grid:
    packed = wholes("probe.packed_per_request", node["packed_per_request"])
    if max(packed) > MOST_PACKED:
        raise InputError(
            f"probe.packed_per_request holds {max(packed)}; accepted: up to {MOST_PACKED}"
        )
    if max(packed) == 1:
        raise InputError(
            f"probe.packed_per_request is {packed!r}; accepted: a list with a number above 1, "
            "as plain decoding times no draft"
        )
    return Grid(
        batches=tuple(wholes("probe.batches", node["batches"])),
        packed_per_request=tuple(packed),
        prefixes=tuple(wholes("probe.prefixes", node["prefixes"])),
        prompt_tokens=tuple(wholes("probe.prompt_tokens", node["prompt_tokens"])),
        edge_tokens=whole("probe.edge_tokens", node["edge_tokens"]),
    )


def _name(value: Any) -> str | None:
    """A file's stem; null: pair, drafter and device."""
    good = isinstance(value, str) and value and value == Path(value).name and value[0] != "."
    if value is not None and not good:
        raise InputError(f"probe.name is {value!r}; accepted: a name without folders, or null")
    return value


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
