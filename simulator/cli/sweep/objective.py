"""The one number of a run that a sweep looks for the best of.

The keys `objective` and `direction` lie beside a run's settings and are no part of its results: the
same run with another objective is the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.results.files import SUMMARY
from traces.common.errors import InputError
from traces.common.json import loads

KEYS = ("objective", "direction")
_MOST = (
    "request_goodput",
    "output_throughput",
    "request_throughput",
    "total_token_throughput",
    "acceptance_length",
)
_STATISTICS = ("mean", "median", "std", "p90", "p95", "p99")
_TIMES = ("ttft", "tpot", "itl", "e2el")
_LEAST = tuple(f"{statistic}_{time}_ms" for time in _TIMES for statistic in _STATISTICS)
NAMES = _MOST + _LEAST  # keys of summary.json
ACCEPTED = f"{', '.join(_MOST)}, {{{','.join(_STATISTICS)}}}_{{{','.join(_TIMES)}}}_ms"  # NAMES


@dataclass(frozen=True, slots=True)
class Objective:
    """A key of the summary."""

    name: str

    @property
    def direction(self) -> str:
        """What better means."""
        return "minimize" if self.name in _LEAST else "maximize"

    def value(self, folder: Path) -> float:
        """Of the finished run in `folder`.

        Raises:
            InputError: the run has no such number.
        """
        path = folder / SUMMARY
        try:
            value = loads(path.read_text(encoding="utf-8"))[self.name]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path}: accepted: the summary of a run, with {self.name}") from None
        if value is None:
            raise InputError(
                f"objective is {self.name!r}, which this run has not: too few requests are "
                "measured; raise num_prompts"
            )
        return float(value)

    def is_better(self, value: float, than: float) -> bool:
        return value > than if self.direction == "maximize" else value < than


def split_objective(config: Mapping[str, Any]) -> tuple[dict[str, Any], Objective | None]:
    """The configuration without the objective's keys, and the objective; None where none is set.

    Raises:
        InputError: an unknown objective or direction, or one that the run will not have.
    """
    rest = {key: value for key, value in config.items() if key not in KEYS}
    name, direction = config.get("objective"), config.get("direction")
    if name is None:
        if direction is not None:
            raise InputError(f"direction is {direction!r}; accepted without an objective: null")
        return rest, None
    if name not in NAMES:
        raise InputError(f"objective is {name!r}; accepted: {ACCEPTED}, or null")
    objective = Objective(name)
    if direction not in (None, objective.direction):
        raise InputError(
            f"direction is {direction!r}; accepted with objective={name}: {objective.direction}"
        )
    if rest.get("task", "run") != "run":
        raise InputError(f"objective is {name!r}; accepted with task={rest['task']}: null")
    if name == "request_goodput" and rest.get("goodput") is None:
        raise InputError("objective is 'request_goodput'; accepted with goodput=null: any other")
    return rest, objective
