"""The two CSV tables of a latency profile: verify times and draft times."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from traces.common.errors import InputError, near_note
from traces.common.json import first_twice
from traces.profiles.header import ANY_BATCH, MOST

MOST_MS = 1e9  # of any time


@dataclass(frozen=True, slots=True)
class TimedCell:
    """One row of a CSV file, with enough context to name it in an error."""

    path: Path
    line: int  # of the file, from 1, the header's
    values: Mapping[str, str]

    def size(self, column: str) -> int:
        """A whole number of at least 1."""
        text = self.values[column]
        if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) > 0):
            self.refuse(column, "a whole number of at least 1")
        return int(text)

    def time_ms(self, column: str) -> float:
        """Milliseconds above 0."""
        value = self.number(column)
        if not 0 < value < MOST_MS:
            self.refuse(column, f"a finite number of milliseconds above 0, below {MOST_MS:g}")
        return value

    def noise_ms(self, column: str = "noise_ms") -> float | None:
        """Milliseconds from 0; None without the column or where its value is empty."""
        if not self.values.get(column):
            return None
        value = self.number(column)
        if not 0 <= value < MOST_MS:
            self.refuse(column, "a finite number of milliseconds from 0, or nothing")
        return value

    def number(self, column: str) -> float:
        """Its value, NaN for what is none."""
        text = self.values[column]
        if "_" in text or not text.isascii():  # which Python's float() lets through
            return math.nan
        try:
            return float(text)
        except ValueError:
            return math.nan

    def refuse(self, column: str, accepted: str) -> None:
        """Raise InputError about the value of ``column``."""
        value = self.values[column]
        raise InputError(
            f"{self.path}: line {self.line}, column {column}: value {value!r:.60}; "
            f"accepted: {accepted}"
        )


def read_cells(path: Path) -> tuple[list[str], list[TimedCell]]:
    """Column names and rows of a CSV file, without the byte-order mark that Excel writes.

    Raises:
        InputError: an unreadable file, one without rows, or a row of another length.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader, line, rows = csv.reader(file), 1, []
            for values in reader:
                rows.append((line, values))
                line = reader.line_num + 1  # a quoted cell may run over several
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot read the table ({error})") from error
    if len(rows) < 2:
        raise InputError(f"{path}: {len(rows)} lines; accepted: a header line and at least one row")
    columns = [name.strip() for name in rows[0][1]]
    twice = first_twice(columns)
    if twice is not None:
        raise InputError(f"{path}: column {twice!r:.60} is there twice; accepted: once")
    for line, values in rows[1:]:
        if len(values) != len(columns):
            raise InputError(
                f"{path}: line {line} has {len(values)} values; accepted: {len(columns)}"
            )
    return columns, [
        TimedCell(path, line, dict(zip(columns, map(str.strip, values), strict=True)))
        for line, values in rows[1:]
    ]


def shown(columns: Sequence[str]) -> str:
    """Names on one line."""
    return " ".join(", ".join(columns).split())[:200]


def require(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    """Raise InputError about the first of `names` that is no column."""
    for name in names:
        if name not in columns:
            raise InputError(f"{path}: column {name} is missing; found {shown(columns)}")


def refuse_others(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    """Raise InputError about columns that are none of `names`: nobody would read them."""
    others = [name for name in columns if name not in names]
    if others:
        raise InputError(
            f"{path}: no table has {'column' if len(others) == 1 else 'columns'} {shown(others)}"
            f"; accepted: {', '.join(names)}{near_note(others[0], names)}"
        )


def check_sorted(
    cells: Sequence[TimedCell], column: str, keys: Sequence[tuple[int, ...]], by: str
) -> None:
    """Raise InputError about the first row whose key does not exceed the one before."""
    for cell, before, key in zip(cells[1:], keys, keys[1:], strict=False):
        if key == before:
            cell.refuse(column, "each size once (this row repeats the one before)")
        if key < before:
            cell.refuse(column, f"rows sorted by {by}")


REGIMES = ("cuda_graph", "eager")
_DIMENSIONS = ("batch", "kv_prefix_tokens")
_PER_REQUEST, _TOTAL = "packed_tokens_per_request", "packed_tokens_total"
_ROW_ORDER = "batch, kv_prefix_tokens, packed tokens"


@dataclass(frozen=True, slots=True)
class VerifyRow:
    """One timed target step; ``batch`` is None where only the total was measured."""

    batch: int | None
    kv_prefix_tokens: int
    packed_tokens_total: int
    verify_ms: float
    captured: bool
    noise_ms: float | None = None  # spread of the timing; None: not stated


@dataclass(frozen=True, slots=True)
class DraftRow:
    """One timed drafter step for ``batch`` requests."""

    batch: int
    kv_prefix_tokens: int
    draft_ms: float
    noise_ms: float | None = None


def read_verify(path: Path, fixed: Mapping[str, int | str]) -> tuple[VerifyRow, ...]:
    """Read the target's table, sorted by batch, KV prefix and packed tokens.

    Columns: ``batch`` and ``kv_prefix_tokens`` unless the header fixes them, one of
    ``packed_tokens_per_request`` and ``packed_tokens_total``, ``verify_ms``, ``regime``, and
    optionally ``noise_ms``.

    Raises:
        InputError: naming file, line, column, value and what is accepted.
    """
    columns, cells = read_cells(path)
    sizes = [name for name in (_PER_REQUEST, _TOTAL) if name in columns]
    if len(sizes) != 1:
        raise InputError(
            f"{path}: columns {shown(columns)}; accepted: exactly one of {_PER_REQUEST} "
            f"and {_TOTAL}"
        )
    _check_columns(path, columns, (sizes[0], "verify_ms", "regime"), fixed)
    rows = [_verify_row(cell, sizes[0], fixed) for cell in cells]
    keys = [(r.batch or 0, r.kv_prefix_tokens, r.packed_tokens_total) for r in rows]
    check_sorted(cells, sizes[0], keys, _ROW_ORDER)
    for cell, before, row in zip(cells[1:], rows, rows[1:], strict=False):
        same = (before.batch, before.kv_prefix_tokens) == (row.batch, row.kv_prefix_tokens)
        if same and row.captured and not before.captured:  # graphs cover the small sizes
            cell.refuse("regime", "eager, once a smaller size is eager")
    return tuple(rows)


def read_draft(path: Path, fixed: Mapping[str, int | str]) -> tuple[DraftRow, ...]:
    """Read the drafter's table, sorted by batch and KV prefix.

    Columns: ``batch`` and ``kv_prefix_tokens`` unless the header fixes them, ``draft_ms``, and
    optionally ``noise_ms``.

    Raises:
        InputError: naming file, line, column, value and what is accepted.
    """
    columns, cells = read_cells(path)
    _check_columns(path, columns, ("draft_ms",), fixed)
    if "batch" not in columns and fixed["batch"] == ANY_BATCH:
        raise InputError(
            f"{path}: column batch is missing; accepted: a column, the header says any"
        )
    rows = [
        DraftRow(
            batch=_dimension(cell, "batch", fixed),
            kv_prefix_tokens=_dimension(cell, "kv_prefix_tokens", fixed),
            draft_ms=cell.time_ms("draft_ms"),
            noise_ms=cell.noise_ms(),
        )
        for cell in cells
    ]
    last = "kv_prefix_tokens" if "kv_prefix_tokens" in columns else columns[0]
    check_sorted(cells, last, [(r.batch, r.kv_prefix_tokens) for r in rows], _ROW_ORDER)
    return tuple(rows)


def _check_columns(
    path: Path, columns: list[str], names: tuple[str, ...], fixed: Mapping | None = None
) -> None:
    """`names`, perhaps noise_ms, and the dimensions, of which `fixed` may have some (None: all)."""
    dimensions = () if fixed is None else _DIMENSIONS
    require(path, columns, (*names, *(name for name in dimensions if name not in fixed)))
    refuse_others(path, columns, (*dimensions, *names, "noise_ms"))


def _dimension(cell: TimedCell, name: str, fixed: Mapping[str, int | str]) -> int:
    return cell.size(name) if name in cell.values else int(fixed[name])


def _verify_row(cell: TimedCell, size: str, fixed: Mapping[str, int | str]) -> VerifyRow:
    any_batch = "batch" not in cell.values and fixed["batch"] == ANY_BATCH
    if any_batch and size == _PER_REQUEST:
        cell.refuse(size, f"{_TOTAL}, as the header says batch: any")
    batch = None if any_batch else _dimension(cell, "batch", fixed)
    if cell.values["regime"] not in REGIMES:
        cell.refuse("regime", ", ".join(REGIMES))
    total = cell.size(size) * (batch if size == _PER_REQUEST else 1)
    if total > MOST:
        cell.refuse(size, f"at most {MOST} tokens in all requests")
    return VerifyRow(
        batch=batch,
        kv_prefix_tokens=_dimension(cell, "kv_prefix_tokens", fixed),
        packed_tokens_total=total,
        verify_ms=cell.time_ms("verify_ms"),
        captured=cell.values["regime"] == "cuda_graph",
        noise_ms=cell.noise_ms(),
    )


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """One timed pass over one prompt."""

    prompt_tokens: int
    prefill_ms: float
    noise_ms: float | None = None  # spread of the timing; None: not stated


def read_prefill(path: Path) -> tuple[PrefillRow, ...]:
    """Read the prefill table, by rising size: ``prompt_tokens``, ``prefill_ms``, and optionally
    ``noise_ms``.

    Raises:
        InputError: naming file, line, column, value and what is accepted.
    """
    columns, cells = read_cells(path)
    _check_columns(path, columns, ("prompt_tokens", "prefill_ms"))
    rows = tuple(
        PrefillRow(cell.size("prompt_tokens"), cell.time_ms("prefill_ms"), cell.noise_ms())
        for cell in cells
    )
    check_sorted(cells, "prompt_tokens", [(row.prompt_tokens,) for row in rows], "prompt_tokens")
    return rows
