"""CSV files with a header, read by column name, and the three layouts that are known."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from traces.common.errors import InputError
from traces.common.json import first_twice
from traces.workloads.cells import Column, lines, names, second_texts, shown, whole_texts
from traces.workloads.rows import CHUNK, Piece, RowSource

# ---------------- Dates with a time of day, as nanoseconds since 1970.


DATE = (
    "a date and time such as 2023-11-16 18:15:46.6805900 or 2024-05-10T00:00:00.009930+00:00,"
    " 1970 to 2199, up to nine decimals"
)
_DATE = re.compile(  # the day and second, the decimals, the zone
    r"\s*((?:19[7-9]\d|2[01]\d\d)-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?"
    r"\s?(Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?\s*",
    re.ASCII,
)


def date_texts(column: Column) -> np.ndarray:
    """(n,) int64 nanoseconds since 1970 in UTC; a date without a zone counts as UTC.

    Decimals beyond microseconds are kept: traces of Azure carry ticks of 100 ns.
    """
    values = _nanoseconds(column.cells)
    if values is not None:
        return values

    def one(cell: str) -> int | None:
        found = _nanoseconds([cell])
        return None if found is None else found[0]

    return column.each(one, np.int64, DATE)


def _nanoseconds(cells: Sequence[str]) -> np.ndarray | None:
    """None where one is no date, or none of the calendar, as the 31st of a short month."""
    found = [_DATE.fullmatch(cell) for cell in cells]
    if not all(found):
        return None
    seconds, decimals, zones = zip(*(match.groups() for match in found))
    try:
        since_1970 = np.array(seconds, dtype="datetime64[s]").astype(np.int64)
    except ValueError:
        return None
    below = np.fromiter((int((d or "0").ljust(9, "0")) for d in decimals), np.int64, len(decimals))
    ahead_of = {None: 0, "Z": 0}
    for zone in set(zones) - set(ahead_of):
        digits = zone[1:].replace(":", "").ljust(4, "0")
        ahead_of[zone] = int(zone[0] + "60") * (60 * int(digits[:2]) + int(digits[2:]))
    ahead = np.fromiter((ahead_of[zone] for zone in zones), np.int64, len(zones))
    return (since_1970 - ahead) * 10**9 + below


Records = list[list[str]]
FAILED = "0 response tokens (a failed request)"


@dataclass(frozen=True, slots=True)
class Layout:
    """Names of the columns that are read; any others are left alone."""

    prompt: str
    output: str
    time: str
    times: Callable[[Column], np.ndarray]
    per_second: float  # of what `times` returns
    time_optional: bool = False
    domain: str | None = None  # always optional
    failures: bool = False  # whether a row without output is a failed request, left out

    @property
    def required(self) -> tuple[str, ...]:
        return (*(() if self.time_optional else (self.time,)), self.prompt, self.output)

    @property
    def optional(self) -> tuple[str, ...]:
        return (*((self.time,) if self.time_optional else ()), *filter(None, [self.domain]))


LAYOUTS = {
    # Azure LLM inference traces of 2023 (Splitwise, ISCA 2024) and 2024 (DynamoLLM, HPCA 2025).
    "azure": Layout("ContextTokens", "GeneratedTokens", "TIMESTAMP", date_texts, 1e9),
    # BurstGPT (arXiv 2401.17644): rows with 0 response tokens are failures, its README says.
    "burstgpt": Layout(
        "Request tokens", "Response tokens", "Timestamp", second_texts, 1.0, failures=True
    ),
    "csv": Layout(
        "prompt_tokens", "output_tokens", "time_s", second_texts, 1.0, True, domain="domain"
    ),
}


def csv_source(path: Path, layout: Layout) -> RowSource:
    """One file of a layout; its header is read, and refused where it is a wrong one."""
    line, header = read_header(path)
    _check_header(path, line, header, layout)
    used = {*layout.required, *layout.optional}
    unused = tuple(name for name in header if name not in used)
    time = layout.time if layout.time in header else None
    return RowSource(path, lambda: _pieces(path, layout), time, layout.per_second, unused)


def _pieces(path: Path, layout: Layout) -> Iterator[Piece]:
    """The file's rows, up to CHUNK lines at a time."""
    header: list[str] | None = None
    for first, texts in lines(path, CHUNK):
        line, records = _records(path, first, texts, header and len(header))
        if header is None and records:
            header = [name.strip() for name in records[0]]
            _check_header(path, int(line[0]), header, layout)
            line, records = _widths(path, line[1:], records[1:], len(header))
        if records:
            yield _piece(path, layout, line, dict(zip(header, zip(*records))))


def _piece(path: Path, layout: Layout, line: np.ndarray, cells: dict[str, Sequence[str]]) -> Piece:
    columns = {name: Column(path, name, cells[name], line) for name in cells}
    time, domain = columns.get(layout.time), columns.get(layout.domain)
    piece = Piece(
        line,
        whole_texts(columns[layout.prompt]),
        whole_texts(columns[layout.output]),
        None if time is None else layout.times(time),
        () if time is None else time.cells,
        None if domain is None else names(domain),
    )
    return piece.without(piece.output_tokens == 0, FAILED) if layout.failures else piece


def read_header(path: Path) -> tuple[int, list[str]]:
    """Line number and names of the first line that is not blank; InputError for an empty file."""
    for first, texts in lines(path, CHUNK):
        for number, text in enumerate(texts, first):
            if text.strip():
                return number, [name.strip() for name in _records(path, number, [text], None)[1][0]]
    raise InputError(f"{path}: is empty; accepted: a header and at least one row")


def _check_header(path: Path, line: int, header: list[str], layout: Layout) -> None:
    where = f"{path}: line {line}"
    for name in layout.required:
        if name not in header:
            raise InputError(
                f"{where}: no column {name}, has {listed(header)};"
                f" accepted: {', '.join(layout.required)}"
            )
    twice = first_twice(header)
    if twice is not None:
        raise InputError(f"{where}: column {shown(twice)} twice; accepted: each name once")
    for name in layout.optional:  # a misspelt one would be left out without a word
        near = [] if name in header else get_close_matches(name, map(str.lower, header), 1, 0.6)
        if near:
            raise InputError(
                f"{where}: column {shown(near[0])} is not read; accepted: {name}, or a name less"
                " like it"
            )


def listed(header: Sequence[str]) -> str:
    """Some names of a header, on one line."""
    few = ", ".join(shown(name) for name in header[:8])
    return few + (f" and {len(header) - 8} more" if len(header) > 8 else "")


def _records(
    path: Path, first: int, texts: list[str], width: int | None
) -> tuple[np.ndarray, Records]:
    """Line numbers and cells of lines `first`, ..; blank lines are left out.

    A record is one line: a quoted cell may not run over its end, so that numbers stay exact.
    """
    line = np.arange(first, first + len(texts))
    for number, text in enumerate(texts, first):
        if '"' in text and text.count('"') % 2:
            raise InputError(
                f"{path}: line {number}: a quote is not closed; accepted: one request a line"
            )
    try:
        records = list(csv.reader(texts, strict=True))
    except csv.Error:
        for number, text in enumerate(texts, first):
            try:
                list(csv.reader([text], strict=True))
            except csv.Error as error:
                raise InputError(
                    f"{path}: line {number}: {error}; accepted: comma-separated cells"
                ) from None
        raise
    return _widths(path, line, records, width)


def _widths(
    path: Path, line: np.ndarray, records: Records, width: int | None
) -> tuple[np.ndarray, Records]:
    """The records that are not blank; InputError for one without `width` cells (None: any)."""
    if {*map(len, records)} <= {width}:
        return line, records
    kept = [i for i, cells in enumerate(records) if any(map(str.strip, cells)) or len(cells) > 1]
    for i in kept if width else ():
        if len(records[i]) != width:
            raise InputError(
                f"{path}: line {line[i]}: {len(records[i])} cells ({listed(records[i])});"
                f" accepted: {width}, as in the header"
            )
    return line[kept], [records[i] for i in kept]
