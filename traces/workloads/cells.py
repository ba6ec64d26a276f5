"""One column of a piece of a file: its cells as numbers, or the first cell that is none.

Whole columns are converted at once; a column that fails is gone through cell by cell, by the
stricter rule, to find and name the cell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traces.errors import InputError

MOST_TOKENS = 10**7
LARGEST_TIME = 1e11  # seconds, three thousand years: above it a float64 has no microseconds
_SHOWN = 40  # characters of a refused value
_WHOLE = re.compile(r"\s*\d{1,15}(?:\.0*)?\s*", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Column:
    """Cells of one name, and where they stand."""

    path: Path
    name: str
    cells: Sequence[Any]  # (n,) text of a CSV, any value of JSON
    line: np.ndarray  # (n,)
    unit: str = "line"  # what `line` counts

    def each(self, one: Callable[[Any], Any], dtype: type, accepted: str) -> np.ndarray:
        """`one` of every cell; InputError for the first for which it is None."""
        values = np.empty(len(self.cells), dtype=dtype)
        for index, cell in enumerate(self.cells):
            value = one(cell)
            if value is None:
                raise self.refused(index, accepted)
            values[index] = value
        return values

    def refused(self, index: int, accepted: str) -> InputError:
        where = f"{self.path}: {self.unit} {self.line[index]}: {self.name}"
        return InputError(f"{where} is {shown(self.cells[index])}; accepted: {accepted}")


def shown(value: Any) -> str:
    """A refused value on one line, cut where it is long."""
    if isinstance(value, list | dict):
        return ("a list" if isinstance(value, list) else "an object") + f" of {len(value)}"
    text = repr(value[: _SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN + 2 else text[:_SHOWN] + "..."


WHOLE = f"a whole number 0 to {MOST_TOKENS}"
NUMBER = f"a number of at most {LARGEST_TIME:g} s"


def whole_texts(column: Column) -> np.ndarray:
    """(n,) int64 lengths in tokens, from texts."""
    joined = "".join(column.cells)
    if joined.isascii() and joined.isdigit() and all(column.cells):
        values = _all_at_once(int, column.cells, np.int64)
        if values is not None and values.max() <= MOST_TOKENS:
            return values
    return column.each(_whole_text, np.int64, WHOLE)


def second_texts(column: Column) -> np.ndarray:
    """(n,) float64 seconds, from texts."""
    joined = "".join(column.cells)
    if joined.isascii() and "_" not in joined:  # which Python's float() lets through
        values = _all_at_once(float, column.cells, np.float64)
        if values is not None and (np.abs(values) <= LARGEST_TIME).all():
            return values
    return column.each(_number_text, np.float64, NUMBER)


def whole_values(column: Column) -> np.ndarray:
    """(n,) int64 lengths in tokens, from values of JSON."""
    return column.each(_whole_value, np.int64, WHOLE)


def millisecond_values(column: Column) -> np.ndarray:
    """(n,) float64 milliseconds, from values of JSON."""
    return column.each(_millisecond_value, np.float64, NUMBER + ", in milliseconds")


def names(column: Column) -> list[str]:
    """(n,) names without surrounding space, none empty."""
    cells = [cell.strip() for cell in column.cells]
    if not all(cells):
        raise column.refused(cells.index(""), "a name")
    return cells


def _all_at_once(number: type, cells: Sequence[str], dtype: type) -> np.ndarray | None:
    try:
        return np.fromiter(map(number, cells), dtype, len(cells))
    except (ValueError, OverflowError):
        return None


def _whole_text(cell: str) -> int | None:
    if not _WHOLE.fullmatch(cell):
        return None
    value = int(cell.partition(".")[0])
    return value if value <= MOST_TOKENS else None


def _number_text(cell: str) -> float | None:
    if not _NUMBER.fullmatch(cell):
        return None
    value = float(cell)
    return value if abs(value) <= LARGEST_TIME else None


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _whole_value(value: Any) -> int | None:
    whole = _is_number(value) and value == int(value) and 0 <= value <= MOST_TOKENS
    return int(value) if whole else None


def _millisecond_value(value: Any) -> float | None:
    return float(value) if _is_number(value) and abs(value) <= LARGEST_TIME * 1e3 else None
