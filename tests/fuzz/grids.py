"""Damage to CSV tables: columns and cells out of place, doubled, lost, or holding odd numbers."""

from __future__ import annotations

import csv
import io

import numpy as np

from tests.fuzz.damage import damaged

CELLS = (
    "", " ", "-1", "0", "1", "1.0", "1.5", "nan", "inf", "-inf", "1e999", "1e300", "1e12", "9" * 30,
    "9" * 400, "9" * 5000, "1_0", "0x10", "１２", "+1", " 7 ", "true", "None", "x", '"', "a\nb",
    "\ud800", "\0", "../x", "=1+1", "x" * 200_000, "1e-320", "-0.0", "4294967296",
    "9007199254740993",
)  # fmt: skip


MOST_CHARACTERS = 50_000_000  # of a file that was made longer


def csv_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """A table with one or two changes of its cells, or damage to its bytes."""
    if rng.random() < 0.25:
        return damaged(data, rng)
    rows = [list(row) for row in csv.reader(io.StringIO(data.decode()))]
    for _ in range(int(rng.integers(1, 3))):
        change = CHANGES[int(rng.integers(len(CHANGES)))]
        rows = change(rows, rng)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def _pick(count: int, rng: np.random.Generator) -> int:
    return int(rng.integers(max(count, 1)))


def cell(rows: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    """One cell, not of the header."""
    row = rows[1 + _pick(len(rows) - 1, rng)] if len(rows) > 1 else rows[0]
    row[_pick(len(row), rng)] = CELLS[_pick(len(CELLS), rng)]
    return rows


def scaled(rows: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    """A number times another."""
    row = rows[-1 if len(rows) < 2 else 1 + _pick(len(rows) - 1, rng)]
    at = _pick(len(row), rng)
    try:
        row[at] = repr(float(row[at]) * (-1, 0, 1 + 1e-12, 0.5, 1e6)[_pick(5, rng)])
    except ValueError:
        row[at] = CELLS[_pick(len(CELLS), rng)]
    return rows


def swapped_columns(rows: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    """Cells of two columns change places; their names stay, or go with them."""
    first, second = _pick(len(rows[0]), rng), _pick(len(rows[0]), rng)
    for row in rows[int(rng.integers(2)) :]:
        if max(first, second) < len(row):
            row[first], row[second] = row[second], row[first]
    return rows


def doubled_column(rows: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    """A column stands there again, perhaps with other cells."""
    at, other = _pick(len(rows[0]), rng), _pick(len(rows[0]), rng)
    return [
        [*row, row[at if number == 0 else other]] if max(at, other) < len(row) else row
        for number, row in enumerate(rows)
    ]


def lost_column(rows: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    at = _pick(len(rows[0]), rng)
    return [row[:at] + row[at + 1 :] for row in rows]


def header(rows: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    """One name is another."""
    names = ("", "x", rows[0][-1], rows[0][0].upper(), rows[0][0] + " ", "a\nb", "\ud800")
    rows[0][_pick(len(rows[0]), rng)] = names[_pick(len(names), rng)]
    return rows


def doubled_row(rows: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    at = _pick(len(rows), rng)
    return [*rows[: at + 1], list(rows[at]), *rows[at + 1 :]]


def lost_row(rows: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    at = _pick(len(rows), rng)
    return (rows[:at] + rows[at + 1 :]) or [[""]]


def swapped_rows(rows: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    first, second = _pick(len(rows), rng), _pick(len(rows), rng)
    rows[first], rows[second] = rows[second], rows[first]
    return rows


def short_row(rows: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    """A row with a cell more or less."""
    row = rows[_pick(len(rows), rng)]
    if rng.random() < 0.5 and len(row) > 1:
        del row[_pick(len(row), rng)]
    else:
        row.append("1")
    return rows


def swollen(rows: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    """Very many rows or columns, one like the other."""
    count = (500, 20_000)[int(rng.integers(2))]
    longest = max(sum(map(len, row)) for row in rows)
    if len(rows) * len(rows[0]) > 10_000 or longest * count > MOST_CHARACTERS:
        return rows
    if rng.random() < 0.5:
        return [*rows, *([rows[-1]] * count)]
    return [row + [row[-1] + (str(k) if at == 0 else "") for k in range(count)]
            for at, row in enumerate(rows[:3]) if row]  # fmt: skip


CHANGES = (
    cell, cell, cell, scaled, scaled, swapped_columns, doubled_column, lost_column, header,
    doubled_row, lost_row, swapped_rows, short_row, swollen,
)  # fmt: skip
