"""Reading ``validation.json``: live measurements and the simulator's predictions, cell by cell."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.look import policy_rank
from analysis.validation_checks import METRICS, PARTS, check_validation, means
from traces.common.errors import InputError
from traces.common.json import read_json

FILE_NAME = "validation.json"


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy at one concurrency; times in ms, errors relative."""

    policy: str
    concurrency: int
    differing: int  # requests whose rounds are not the replay's
    throughput: float  # tokens/s, mean over repeats
    predicted: float  # tokens/s
    noise: float | None  # half-width of the 95 % interval of `throughput`, relative
    error: dict[str, float]
    tpot_ms: tuple[float, float]  # measured, predicted
    parts_ms: dict[str, tuple[float, float]]  # by part of a round: measured, predicted


@dataclass(frozen=True, slots=True)
class Validation:
    """One checked ``validation.json``; ``data`` holds it as written."""

    path: Path
    data: dict[str, Any] = field(repr=False)
    cells: tuple[Cell, ...]  # by concurrency, then the known policies first

    @property
    def policies(self) -> list[str]:
        """Every policy once, in the order of tables."""
        return sorted({cell.policy for cell in self.cells}, key=lambda one: (policy_rank(one), one))

    @property
    def concurrencies(self) -> list[int]:
        return sorted({cell.concurrency for cell in self.cells})


def find_validation(paths: Sequence[str | os.PathLike]) -> Path | None:
    """The validation among what a command line names, None where there is none.

    Raises:
        InputError: it does not stand alone.
    """
    found = [one for one in map(_validation_at, map(Path, paths)) if one is not None]
    if found and len(paths) > 1:
        raise InputError(f"{found[0]}: a validation is read alone, got {len(paths)} paths")
    return found[0] if found else None


def _validation_at(path: Path) -> Path | None:
    if path.is_file():
        return path
    inside = path / FILE_NAME
    return inside if inside.is_file() else None


def read_validation(path: Path) -> Validation:
    """A checked validation; InputError naming the file and the first thing that is wrong."""
    data = read_json(path, "a validation")
    try:
        check_validation(data)
        cells = [_cell(cell) for cell in data["cells"]]
        _check_unique(cells)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    ordered = sorted(cells, key=lambda one: (one.concurrency, policy_rank(one.policy), one.policy))
    return Validation(path, data, tuple(ordered))


def _check_unique(cells: Iterable[Cell]) -> None:
    seen = set()
    for at, cell in enumerate(cells):
        key = cell.policy, cell.concurrency
        if key in seen:
            raise InputError(
                f"cells[{at}] is {cell.policy} at concurrency {cell.concurrency} once more, "
                "expected one cell for each"
            )
        seen.add(key)


def _cell(cell: dict) -> Cell:
    throughput, predicted = means(cell, "output_throughput")
    return Cell(
        policy=cell["policy"],
        concurrency=cell["concurrency"],
        differing=cell["commits"]["differing"],
        throughput=throughput,
        predicted=predicted,
        noise=cell["noise"],
        error={metric: cell["error"][metric] for metric in METRICS},
        tpot_ms=means(cell, "median_tpot_ms"),
        parts_ms={part: means(cell, f"step_ms.{part}") for part in PARTS},
    )
