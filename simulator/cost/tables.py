"""The two CSV tables of a latency profile: verify times and draft times."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simulator.cost.header import ANY_BATCH
from traces.errors import InputError

REGIMES = ("cuda_graph", "eager")
_PER_REQUEST, _TOTAL = "packed_tokens_per_request", "packed_tokens_total"


@dataclass(frozen=True, slots=True)
class VerifyRow:
    """One timed target step; ``batch`` is None where only the total was measured."""

    batch: int | None
    kv_prefix_tokens: int
    packed_tokens_total: int
    verify_ms: float
    captured: bool


@dataclass(frozen=True, slots=True)
class DraftRow:
    """One timed drafter step for ``batch`` requests."""

    batch: int
    kv_prefix_tokens: int
    draft_ms: float


@dataclass(frozen=True, slots=True)
class _Cell:
    """One line of a CSV file, with enough context to name it in an error."""

    path: Path
    row: int
    values: Mapping[str, str]

    def size(self, column: str) -> int:
        text = self.values[column]
        if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) > 0):
            self.refuse(column, "a whole number of at least 1")
        return int(text)

    def time_ms(self, column: str) -> float:
        try:
            value = float(self.values[column])
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            self.refuse(column, "a finite number of milliseconds above 0")
        return value

    def refuse(self, column: str, accepted: str) -> None:
        value = self.values[column]
        raise InputError(
            f"{self.path}: row {self.row}, column {column}: value {value!r}; accepted: {accepted}"
        )


def read_verify(path: Path, fixed: Mapping[str, int | str]) -> tuple[VerifyRow, ...]:
    """Read the target's table, sorted by batch, KV prefix and packed tokens.

    Columns: ``batch`` and ``kv_prefix_tokens`` unless the header fixes them, one of
    ``packed_tokens_per_request`` and ``packed_tokens_total``, ``verify_ms``, ``regime``.

    Raises:
        InputError: naming file, row, column, value and what is accepted.
    """
    columns, cells = _cells(path)
    sizes = [name for name in (_PER_REQUEST, _TOTAL) if name in columns]
    if len(sizes) != 1:
        raise InputError(
            f"{path}: columns {', '.join(columns)}; accepted: exactly one of {_PER_REQUEST} "
            f"and {_TOTAL}"
        )
    _require(path, columns, (sizes[0], "verify_ms", "regime"), fixed)
    rows = [_verify_row(cell, sizes[0], fixed) for cell in cells]
    _sorted(
        cells, sizes[0], [(r.batch or 0, r.kv_prefix_tokens, r.packed_tokens_total) for r in rows]
    )
    _regimes_in_order(cells, rows)
    return tuple(rows)


def read_draft(path: Path, fixed: Mapping[str, int | str]) -> tuple[DraftRow, ...]:
    """Read the drafter's table: ``batch``, ``kv_prefix_tokens`` (unless fixed), ``draft_ms``.

    Raises:
        InputError: naming file, row, column, value and what is accepted.
    """
    columns, cells = _cells(path)
    _require(path, columns, ("draft_ms",), fixed)
    if "batch" not in columns and fixed["batch"] == ANY_BATCH:
        raise InputError(
            f"{path}: column batch is missing; accepted: a column, the header says any"
        )
    rows = [
        DraftRow(
            batch=_dimension(cell, "batch", fixed),
            kv_prefix_tokens=_dimension(cell, "kv_prefix_tokens", fixed),
            draft_ms=cell.time_ms("draft_ms"),
        )
        for cell in cells
    ]
    last = "kv_prefix_tokens" if "kv_prefix_tokens" in columns else columns[0]
    _sorted(cells, last, [(r.batch, r.kv_prefix_tokens) for r in rows])
    return tuple(rows)


def _cells(path: Path) -> tuple[list[str], list[_Cell]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot read the profile's table ({error})") from error
    if len(lines) < 2:
        raise InputError(
            f"{path}: {len(lines)} lines; accepted: a header line and at least one row"
        )
    columns = lines[0]
    for row, line in enumerate(lines[1:], start=1):
        if len(line) != len(columns):
            raise InputError(f"{path}: row {row} has {len(line)} values; accepted: {len(columns)}")
    return columns, [
        _Cell(path, row, dict(zip(columns, line, strict=True)))
        for row, line in enumerate(lines[1:], start=1)
    ]


def _require(path: Path, columns: list[str], names: tuple[str, ...], fixed: Mapping) -> None:
    dimensions = [name for name in ("batch", "kv_prefix_tokens") if name not in fixed]
    for name in (*names, *dimensions):
        if name not in columns:
            raise InputError(f"{path}: column {name} is missing; found {', '.join(columns)}")


def _dimension(cell: _Cell, name: str, fixed: Mapping[str, int | str]) -> int:
    return cell.size(name) if name in cell.values else int(fixed[name])


def _verify_row(cell: _Cell, size: str, fixed: Mapping[str, int | str]) -> VerifyRow:
    any_batch = "batch" not in cell.values and fixed["batch"] == ANY_BATCH
    if any_batch and size == _PER_REQUEST:
        cell.refuse(size, f"{_TOTAL}, as the header says batch: any")
    batch = None if any_batch else _dimension(cell, "batch", fixed)
    if cell.values["regime"] not in REGIMES:
        cell.refuse("regime", ", ".join(REGIMES))
    return VerifyRow(
        batch=batch,
        kv_prefix_tokens=_dimension(cell, "kv_prefix_tokens", fixed),
        packed_tokens_total=cell.size(size) * (batch if size == _PER_REQUEST else 1),
        verify_ms=cell.time_ms("verify_ms"),
        captured=cell.values["regime"] == "cuda_graph",
    )


def _sorted(cells: list[_Cell], column: str, keys: list[tuple[int, ...]]) -> None:
    for cell, before, key in zip(cells[1:], keys, keys[1:], strict=False):
        if key == before:
            cell.refuse(column, "each size once (this row repeats the one before)")
        if key < before:
            cell.refuse(column, "rows sorted by batch, kv_prefix_tokens, packed tokens")


def _regimes_in_order(cells: list[_Cell], rows: list[VerifyRow]) -> None:
    """Captured graphs cover the small sizes: an eager size below a captured one is refused."""
    for cell, before, row in zip(cells[1:], rows, rows[1:], strict=False):
        same = (before.batch, before.kv_prefix_tokens) == (row.batch, row.kv_prefix_tokens)
        if same and row.captured and not before.captured:
            cell.refuse("regime", "eager, once a smaller size is eager")
