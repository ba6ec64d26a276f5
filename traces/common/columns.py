"""Columns of a run's parquet tables, checked before anything is computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from traces.common.errors import InputError
from traces.common.json import first_twice

ROWS_PER_BYTE = 8  # times hardly ever repeat: a file that holds more rows was made to burst
LARGEST_S = 1e12


@dataclass(frozen=True, slots=True)
class Kind:
    """Accepted dtype kinds and range of a column; `missing`: NaN stands for what never was."""

    dtypes: str
    least: float
    most: float
    accepted: str
    missing: bool = False


FLAGS = Kind("b", 0, 1, "true or false")
WHOLE = Kind("iu", 0, 2**53, "whole numbers from 0")
COUNTS = Kind("iu", 1, 2**53, "whole numbers from 1")
SECONDS = Kind("f", 0, LARGEST_S, "finite seconds from 0")
SOME_SECONDS = Kind("f", 0, LARGEST_S, "seconds from 0, or none", missing=True)


def read_columns(
    path: Path, kinds: Mapping[str, Kind], what: str, rows: int | None = None
) -> dict[str, np.ndarray]:
    """The columns of `kinds`, (N,) each, in the file's order or, with a column `request`, in its.

    Args:
        what: the file holds, for messages. rows: N that it must have; None: any.

    Raises:
        InputError: a file that is damaged, lacks a column, or holds what a column cannot.
    """
    import pyarrow
    from pyarrow import parquet

    if not path.is_file():  # a pipe might never end
        raise InputError(f"{path}: no regular file, expected {what} of a finished run")
    try:
        names = _names(path, rows, what)
        missing = [name for name in kinds if name not in names]
        if missing:
            raise InputError(
                f"{path}: no column {missing[0]}; accepted: a run made by this version"
            )
        twice = first_twice(names)
        if twice is not None:
            raise InputError(f"{path}: column {twice!r:.60} is there twice; accepted: once")
        order = ["request"] if "request" in names else []
        table = parquet.read_table(path, columns=[*dict.fromkeys([*kinds, *order])])
        table = table.sort_by("request") if order else table  # a long run's come as they end
        columns = {name: table[name].to_numpy() for name in (*kinds, *order)}
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
        raise InputError(f"{path}: unreadable, expected {what} of a finished run") from error
    for name, kind in kinds.items():
        _check(path, name, columns[name], kind)
    if order:
        _check_numbers(path, columns["request"])
    return {name: columns[name] for name in kinds}


def _names(path: Path, rows: int | None, what: str) -> list[str]:
    from pyarrow import parquet

    metadata = parquet.read_metadata(path)
    most = ROWS_PER_BYTE * path.stat().st_size
    if metadata.num_rows > most or rows not in (None, metadata.num_rows):
        wanted = f"at most {most}" if rows is None else str(rows)
        raise InputError(f"{path}: {metadata.num_rows} rows, expected {what} of a run, {wanted}")
    return list(metadata.schema.to_arrow_schema().names)


def _check(path: Path, name: str, column: np.ndarray, kind: Kind) -> None:
    if column.dtype.kind not in kind.dtypes:
        raise InputError(
            f"{path}: column {name} holds {column.dtype}, without gaps expected {kind.accepted}"
        )
    inside = (column >= kind.least) & (column <= kind.most)
    bad = ~inside & ~np.isnan(column) if kind.missing else ~inside
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"{path}: row {row}, column {name}: {column[row]}, expected {kind.accepted}"
        )


def _check_numbers(path: Path, request: np.ndarray) -> None:
    """Sorted, the N requests are 0 to N - 1: none is there twice, and none is missing."""
    wrong = np.flatnonzero(request != np.arange(len(request)))
    if len(wrong):
        raise InputError(
            f"{path}: column request holds {request[wrong[0]]!s:.40} as number {wrong[0]} by size, "
            f"expected 0 to {len(request) - 1}, each once"
        )


def check_rising(path: Path, columns: Mapping[str, np.ndarray], low: str, high: str) -> None:
    """InputError for the first row whose `high` is below its `low`; NaN passes."""
    late = columns[low] > columns[high] + 1e-9 * np.abs(columns[low])  # sums of seconds round
    if late.any():
        row = int(late.argmax())
        raise InputError(
            f"{path}: row {row}, column {high}: {columns[high][row]}, expected at least {low}, "
            f"{columns[low][row]}"
        )
