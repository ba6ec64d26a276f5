"""Measured rounds: columns of a CSV file, or of a live run's steps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from traces.common.columns import COUNTS, FLAGS, SECONDS, WHOLE, Kind, read_columns
from traces.common.errors import InputError
from traces.profiles.tables import TimedCell, read_cells, refuse_others, require

STEPS = "steps.parquet"
MOST_BATCH = 100_000  # every request of a round is priced
FEWEST = 4  # rounds: two to fit, two to judge

_NEAR_0 = 1e-300  # the least number above 0
_BATCH = replace(COUNTS, most=MOST_BATCH, accepted=f"whole numbers, 1 to {MOST_BATCH}")
_WHOLE = replace(WHOLE, most=10**9)
_FLAG = replace(FLAGS, accepted="true or false, 1 or 0")
REQUIRED = ("batch", "width", "round_ms", "committed")
COLUMNS = {
    "batch": _BATCH,
    "width": _WHOLE,
    "round_ms": Kind("f", _NEAR_0, 1e9, "a finite number of milliseconds above 0"),
    "committed": _WHOLE,
    "draft_ms": Kind("f", 0, 1e9, "a finite number of milliseconds from 0"),
    "context": Kind("f", _NEAR_0, 1e12, "tokens above 0"),
    "tree": _FLAG,
    "drafted": _FLAG,
    "nodes": _WHOLE,
    "ordered": _WHOLE,
    "graph": _WHOLE,
}
_OF_STEPS = {
    "batch": _BATCH,
    "draft_nodes": WHOLE,
    "step_s": replace(SECONDS, least=1e-12, accepted="finite seconds above 0"),
    "draft_s": SECONDS,
    "committed": WHOLE,
    "drafted": FLAGS,
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
        InputError: naming file, line, column, value and what is accepted.
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
    names, cells = read_cells(path)
    require(path, names, REQUIRED)
    refuse_others(path, names, list(COLUMNS))
    columns = {name: _column(cells, name, COLUMNS[name]) for name in names}
    if "nodes" in columns:
        over = columns["nodes"] > columns["batch"] * columns["width"]
        _refuse_first(cells, over, "nodes", "up to batch x width")
    if "drafted" in columns:
        over = (columns["width"] > 0) & (columns["drafted"] == 0)
        _refuse_first(cells, over, "width", "0 where drafted is false")
    return columns


def _column(cells: Sequence[TimedCell], name: str, kind: Kind) -> np.ndarray:
    flags = {"true": 1.0, "false": 0.0}
    numbers = (flags.get(cell.values[name].lower(), cell.number(name)) for cell in cells)
    values = np.array(list(numbers), float)
    inside = (values >= kind.least) & (values <= kind.most)
    whole = kind.dtypes == "f" or values == np.floor(values)
    _refuse_first(cells, ~(inside & whole), name, kind.accepted)
    return values


def _refuse_first(cells: Sequence[TimedCell], bad: np.ndarray, name: str, accepted: str) -> None:
    if bad.any():
        cells[int(bad.argmax())].refuse(name, accepted)


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
