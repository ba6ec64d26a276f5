"""Plain tables: the same characters on every terminal, so that they can be copied into a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

NONE = "-"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table: two blanks between columns, the first to the left, the others to the right.

    heads: a title per column; a line break in one gives two lines of titles.
    """
    split = [head.split("\n") for head in heads]
    tall = max(len(parts) for parts in split)
    titles = [[""] * (tall - len(parts)) + parts for parts in split]
    body = [*map(list, zip(*titles, strict=True)), *map(list, rows)]
    width = [max(len(row[i]) for row in body) for i in range(len(heads))]
    for row in body:
        cells = [row[0].ljust(width[0]), *(c.rjust(w) for c, w in zip(row[1:], width[1:]))]
        yield "  ".join(cells).rstrip()


def number(value: float | None, digits: int, sign: bool = False) -> str:
    """A dash where there is no value."""
    if value is None:
        return NONE
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def percent(share: float | None, digits: int = 1) -> str:
    """A signed percentage."""
    return NONE if share is None else f"{100 * share:+.{digits}f}%"


def span(values: Iterable[float], digits: int = 3) -> str:
    """ "low to high", or the value where all are the same as shown."""
    values = list(values)
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"
