"""Measured rounds: columns of a CSV file, or of a live run's steps."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from traces.common.columns import COUNTS, FLAGS, SECONDS, WHOLE, read_columns
from traces.common.errors import InputError
from traces.common.json import first_twice

STEPS = "steps.parquet"
MOST_BATCH = 100_000  # every request of a round is priced
FEWEST = 4  # rounds: two to fit, two to judge


@dataclass(frozen=True, slots=True)
class Column:
    """What a cell may be; `whole`: a whole number."""

    least: float
    most: float
    accepted: str
    whole: bool = False

    def holds(self, value: float) -> bool:
        inside = self.least <= value <= self.most
        return inside and (not self.whole or value == int(value))


_NEAR_0 = 1e-300  # the least number above 0
_WHOLE = Column(0, 1e9, "a whole number of at least 0", whole=True)
_FLAG = Column(0, 1, "true or false, 1 or 0", whole=True)
REQUIRED = {
    "batch": Column(1, MOST_BATCH, f"1 to {MOST_BATCH}", whole=True),
    "width": _WHOLE,
    "round_ms": Column(_NEAR_0, 1e9, "a finite number of milliseconds above 0"),
    "committed": _WHOLE,
}
COLUMNS = REQUIRED | {
    "draft_ms": Column(0, 1e9, "a finite number of milliseconds from 0"),
    "context": Column(_NEAR_0, 1e12, "tokens above 0"),
    "tree": _FLAG,
    "drafted": _FLAG,
    "nodes": _WHOLE,
    "ordered": _WHOLE,
    "graph": _WHOLE,
}


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRounds:
    """One line a round, all columns (n,); those that are not stated are None.

    batch: requests. nodes: draft nodes verified in all. width: the most of one request. round_ms,
    draft_ms: milliseconds. committed: tokens. context: mean KV tokens before the roots. tree,
    drafted: bool. ordered: draft nodes put in order. graph: captured size of the pass, 0 for none.
    """

    path: Path
    sha256: str
    batch: np.ndarray
    width: np.ndarray
    nodes: np.ndarray
    round_ms: np.ndarray
    committed: np.ndarray
    drafted: np.ndarray
    tree: np.ndarray | None = None
    draft_ms: np.ndarray | None = None
    context: np.ndarray | None = None
    ordered: np.ndarray | None = None
    graph: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.batch)


def read_rounds(path: Path) -> MeasuredRounds:
    """Rounds of a CSV file, or the steps of a live run's folder.

    Raises:
        InputError: naming file, row, column, value and what is accepted.
    """
    path, columns = (path / STEPS, _read_run(path)) if path.is_dir() else (path, _read_csv(path))
    batch, width = columns["batch"].astype(np.int64), columns["width"].astype(np.int64)
    if len(batch) < FEWEST:
        raise InputError(f"{path}: {len(batch)} rounds; accepted: at least {FEWEST}")
    drafted, tree = columns.get("drafted", width > 0).astype(bool), columns.get("tree")
    return MeasuredRounds(
        path,
        hashlib.sha256(path.read_bytes()).hexdigest(),
        batch,
        width,
        nodes=columns.get("nodes", batch * width).astype(np.int64),
        round_ms=columns["round_ms"],
        committed=columns["committed"],
        drafted=drafted,
        tree=None if tree is None else tree.astype(bool) & drafted,
        **{name: columns.get(name) for name in ("draft_ms", "context", "ordered", "graph")},
    )


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot read the rounds ({reason})") from error
    if not lines:
        raise InputError(f"{path}: empty; accepted: a header line with {', '.join(REQUIRED)}")
    names = [name.strip() for name in lines[0]]
    _check_names(path, names)
    for row, line in enumerate(lines[1:], start=1):
        if len(line) != len(names):
            raise InputError(f"{path}: row {row} has {len(line)} values; accepted: {len(names)}")
    cells = list(zip(*lines[1:], strict=True)) or [()] * len(names)
    columns = {name: _column(path, name, own) for name, own in zip(names, cells, strict=True)}
    _check_together(path, columns)
    return columns


def _check_names(path: Path, names: list[str]) -> None:
    for name in REQUIRED:
        if name not in names:
            found = " ".join(", ".join(names).split())[:200]
            raise InputError(f"{path}: column {name} is missing; found {found}")
    for name in names:
        if name not in COLUMNS:
            accepted = ", ".join(COLUMNS)
            raise InputError(f"{path}: column {name!r:.60} is not known; accepted: {accepted}")
    twice = first_twice(names)
    if twice is not None:
        raise InputError(f"{path}: column {twice} is there twice; accepted: once")


def _column(path: Path, name: str, cells: tuple[str, ...]) -> np.ndarray:
    values = [_value(text) for text in cells]
    for row, value in enumerate(values, start=1):
        if not COLUMNS[name].holds(value):
            raise InputError(
                f"{path}: row {row}, column {name}: value {cells[row - 1]!r:.60}; "
                f"accepted: {COLUMNS[name].accepted}"
            )
    return np.array(values, float)


def _value(text: str) -> float:
    """The cell's number; NaN for what is none, which no column holds."""
    text = text.strip().lower()
    if text in ("true", "false"):
        return float(text == "true")
    if "_" in text or not text.isascii():  # which Python's float() lets through
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan


def _check_together(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Nodes are no more than every request can have, and none where nothing was drafted."""
    rules = [("nodes", columns["batch"] * columns["width"], "up to batch x width")]
    if "drafted" in columns:
        limit = np.where(columns["drafted"] > 0, np.inf, 0)
        rules.append(("width", limit, "0 where drafted is false"))
    for name, limit, accepted in rules:
        over = np.flatnonzero(columns[name] > limit) if name in columns else ()
        if len(over):
            row = int(over[0])
            raise InputError(
                f"{path}: row {row + 1}, column {name}: value {columns[name][row]:g}; accepted: "
                f"{accepted}"
            )


def _read_run(folder: Path) -> dict[str, np.ndarray]:
    """Steps of a run: nothing says in them how long contexts are, nor whether chains or trees."""
    steps = read_columns(folder / STEPS, _OF_STEPS, "the steps")
    return {
        "batch": steps["batch"],
        "width": -(-steps["draft_nodes"] // steps["batch"]),
        "nodes": steps["draft_nodes"],
        "round_ms": steps["step_s"] * 1e3,
        "draft_ms": steps["draft_s"] * 1e3,
        "committed": steps["committed"],
        "drafted": steps["drafted"],
    }


_OF_STEPS = {
    "batch": replace(COUNTS, most=MOST_BATCH, accepted=f"whole numbers, 1 to {MOST_BATCH}"),
    "draft_nodes": WHOLE,
    "step_s": replace(SECONDS, least=1e-12, accepted="finite seconds above 0"),
    "draft_s": SECONDS,
    "committed": WHOLE,
    "drafted": FLAGS,
}
