"""A CSV table of a latency profile, cell by cell, with errors that name file, line and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traces.errors import InputError
from traces.near import near_note
from traces.strict_json import first_twice

MOST_MS = 1e9  # of any time


@dataclass(frozen=True, slots=True)
class Cell:
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
        value = self._number(column)
        if not 0 < value < MOST_MS:
            self.refuse(column, f"a finite number of milliseconds above 0, below {MOST_MS:g}")
        return value

    def noise_ms(self, column: str = "noise_ms") -> float | None:
        """Milliseconds from 0; None without the column or where its value is empty."""
        if not self.values.get(column):
            return None
        value = self._number(column)
        if not 0 <= value < MOST_MS:
            self.refuse(column, "a finite number of milliseconds from 0, or nothing")
        return value

    def _number(self, column: str) -> float:
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


def read_cells(path: Path) -> tuple[list[str], list[Cell]]:
    """Column names and rows of a CSV file, without the byte-order mark that Excel writes.

    Raises:
        InputError: an unreadable file, one without rows, or a row of another length.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(_numbered(csv.reader(file)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot read the profile's table ({error})") from error
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
        Cell(path, line, dict(zip(columns, map(str.strip, values), strict=True)))
        for line, values in rows[1:]
    ]


def _numbered(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line that each begins in: a quoted cell may run over several."""
    line = 1
    for values in reader:
        yield line, values
        line = reader.line_num + 1


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
    cells: Sequence[Cell], column: str, keys: Sequence[tuple[int, ...]], by: str
) -> None:
    """Raise InputError about the first row whose key does not exceed the one before."""
    for cell, before, key in zip(cells[1:], keys, keys[1:], strict=False):
        if key == before:
            cell.refuse(column, "each size once (this row repeats the one before)")
        if key < before:
            cell.refuse(column, f"rows sorted by {by}")
