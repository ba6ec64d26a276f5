"""Damage to parquet tables: bytes, columns lost or of another type, numbers that cannot be."""

from __future__ import annotations

import io

import numpy as np
import pyarrow
from pyarrow import parquet

from tests.fuzz.damage import damaged

NUMBERS = (-1, 0, 1, 0.5, 2**31, 2**53 + 1, 2**63 - 1, 1e-300, 1e18, 1e300, np.nan, np.inf, -np.inf)


def parquet_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, or a well-formed table of other content."""
    if rng.random() < 0.35:
        return damaged(data, rng)
    table = parquet.read_table(io.BytesIO(data), use_threads=False)
    for _ in range(int(rng.integers(1, 3))):
        name = table.column_names[int(rng.integers(table.num_columns))]
        table = CHANGES[int(rng.integers(len(CHANGES)))](table, name, rng)
        if len({*table.column_names}) < table.num_columns or not table.num_columns:
            break
    written = io.BytesIO()
    parquet.write_table(table, written)
    return written.getvalue()


def _replaced(table: pyarrow.Table, name: str, column) -> pyarrow.Table:
    return table.set_column(table.column_names.index(name), name, pyarrow.array(column))


def value(table: pyarrow.Table, name: str, rng: np.random.Generator) -> pyarrow.Table:
    """One entry is another number, perhaps of a wider type."""
    column = table[name].to_pylist()
    if column:
        number = NUMBERS[int(rng.integers(len(NUMBERS)))]
        at = int(rng.integers(len(column)))
        whole = isinstance(column[at], int) and not isinstance(column[at], bool)
        fits = np.isfinite(number) and abs(number) < 2**63
        column[at] = int(number) if whole and fits else number
    return _from_list(table, name, column)


def gap(table: pyarrow.Table, name: str, rng: np.random.Generator) -> pyarrow.Table:
    """One entry is missing."""
    column = table[name].to_pylist()
    if column:
        column[int(rng.integers(len(column)))] = None
    return _from_list(table, name, column)


def _from_list(table: pyarrow.Table, name: str, column: list) -> pyarrow.Table:
    try:
        return _replaced(table, name, column)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
        return _replaced(table, name, [None if x is None else str(x) for x in column])


def retyped(table: pyarrow.Table, name: str, rng: np.random.Generator) -> pyarrow.Table:
    """The column in another type."""
    rows, column = table.num_rows, table[name].to_pylist()
    choices = (
        lambda: [str(x) for x in column],
        lambda: [[x] for x in column],
        lambda: [None] * rows,
        lambda: [bool(x) for x in column],
        lambda: [float(x) if isinstance(x, int | float) else 0.0 for x in column],
        lambda: [{"x": x} for x in column],
        lambda: np.zeros(rows, "datetime64[s]"),
        lambda: pyarrow.array([str(x) for x in column]).dictionary_encode(),
    )
    return _replaced(table, name, choices[int(rng.integers(len(choices)))]())


def lost(table: pyarrow.Table, name: str, rng: np.random.Generator) -> pyarrow.Table:
    return table.drop_columns([name])


def doubled(table: pyarrow.Table, name: str, rng: np.random.Generator) -> pyarrow.Table:
    """The name stands there twice."""
    return table.append_column(name, table[name])


def exchanged(table: pyarrow.Table, name: str, rng: np.random.Generator) -> pyarrow.Table:
    """Two columns have each other's names."""
    other = table.column_names[int(rng.integers(table.num_columns))]
    swap = {name: other, other: name}
    return table.rename_columns([swap.get(one, one) for one in table.column_names])


def shorter(table: pyarrow.Table, name: str, rng: np.random.Generator) -> pyarrow.Table:
    return table.slice(int(rng.integers(table.num_rows + 1)))


def longer(table: pyarrow.Table, name: str, rng: np.random.Generator) -> pyarrow.Table:
    """A row stands there again."""
    return pyarrow.concat_tables([table, table.slice(0, 1)])


def scaled(table: pyarrow.Table, name: str, rng: np.random.Generator) -> pyarrow.Table:
    """Every number of the column times another."""
    column = table[name].to_pylist()
    if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in column):
        return table
    factor = (-1, 0, 2, 1000)[int(rng.integers(4))]
    return _from_list(table, name, [x * factor for x in column])


CHANGES = (value, value, gap, retyped, lost, doubled, exchanged, shorter, longer, scaled)
