"""One column of a piece of a file: its cells as numbers, or the first cell that is none.

Whole columns are converted at once; a column that fails is gone through cell by cell, by the
stricter rule, to find and name the cell.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traces.common.errors import InputError

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

    def one(cell: str) -> int | None:
        value = int(cell.partition(".")[0]) if _WHOLE.fullmatch(cell) else MOST_TOKENS + 1
        return value if value <= MOST_TOKENS else None

    return column.each(one, np.int64, WHOLE)


def second_texts(column: Column) -> np.ndarray:
    """(n,) float64 seconds, from texts."""
    joined = "".join(column.cells)
    if joined.isascii() and "_" not in joined:  # which Python's float() lets through
        values = _all_at_once(float, column.cells, np.float64)
        if values is not None and (np.abs(values) <= LARGEST_TIME).all():
            return values

    def one(cell: str) -> float | None:
        value = float(cell) if _NUMBER.fullmatch(cell) else math.inf
        return value if abs(value) <= LARGEST_TIME else None

    return column.each(one, np.float64, NUMBER)


def whole_values(column: Column) -> np.ndarray:
    """(n,) int64 lengths in tokens, from values of JSON."""

    def one(value: Any) -> int | None:
        whole = _is_number(value) and value == int(value) and 0 <= value <= MOST_TOKENS
        return int(value) if whole else None

    return column.each(one, np.int64, WHOLE)


def millisecond_values(column: Column) -> np.ndarray:
    """(n,) float64 milliseconds, from values of JSON."""

    def one(value: Any) -> float | None:
        return float(value) if _is_number(value) and abs(value) <= LARGEST_TIME * 1e3 else None

    return column.each(one, np.float64, NUMBER + ", in milliseconds")


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


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


BLOCK_BYTES = 1 << 16
LONGEST_LINE = 1 << 22  # characters; a file without line ends is not read into memory whole
_PLAIN = "accepted: UTF-8 text"
BOM = b"\xef\xbb\xbf"
_OTHER = {  # how files of other kinds start
    b"\x1f\x8b": "gzip compressed",
    b"PK\x03\x04": "zip compressed",
    b"\x28\xb5\x2f\xfd": "zstd compressed",
    b"BZh": "bzip2 compressed",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


def blocks(path: Path) -> Iterator[str]:
    """The file's text in pieces of about BLOCK_BYTES, a UTF-8 byte-order mark left out.

    Raises InputError for what is no readable plain UTF-8 file: missing, a folder, compressed,
    an undecodable byte or a NUL (both with line and byte offset, from 0).
    """
    try:
        found = path.exists()
    except (OSError, ValueError) as error:  # a name too long, a NUL in the name
        raise InputError(f"{str(path)!r}: {error}; accepted: a workload file") from None
    if not found or path.is_dir():
        what = "is a directory" if found else "no such file"
        raise InputError(f"{path}: {what}; accepted: a workload file")
    if not path.is_file():
        raise InputError(f"{path}: is no regular file; accepted: a file that can be read twice")
    try:
        with path.open("rb") as file:
            yield from _decoded(file, path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; accepted: a readable file") from None


def lines(path: Path, count: int) -> Iterator[tuple[int, list[str]]]:
    """Runs of at most `count` lines without their ends, each with its first line's number (1..).

    Lines end with \\n or \\r\\n; the last one may lack its end.
    """
    first, waiting, rest = 1, [], ""
    for text in blocks(path):
        waiting += (rest + text).split("\n")
        rest = waiting.pop()
        while len(waiting) >= count:
            yield first, _without_returns(waiting[:count], path, first)
            first, waiting = first + count, waiting[count:]
        if len(rest) > LONGEST_LINE:
            raise InputError(
                f"{path}: line {first + len(waiting)}: longer than {LONGEST_LINE} characters;"
                " accepted: one request a line"
            )
    waiting += [rest] if rest else []
    for start in range(0, len(waiting), count):
        yield first + start, _without_returns(waiting[start : start + count], path, first + start)


def _without_returns(texts: list[str], path: Path, first: int) -> list[str]:
    if not any("\r" in text for text in texts):
        return texts
    texts = [text.removesuffix("\r") for text in texts]
    for number, text in enumerate(texts, first):
        if "\r" in text:
            raise InputError(
                f"{path}: line {number}: a carriage return inside the line;"
                " accepted: lines that end with \\n or \\r\\n"
            )
    return texts


def _decoded(file, path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset, line = 0, 1  # of the block's first byte
    while block := file.read(BLOCK_BYTES):
        kinds = [name for magic, name in _OTHER.items() if block.startswith(magic)]
        if kinds and offset == 0:
            raise InputError(f"{path}: is {kinds[0]}; accepted: UTF-8 text, unpacked")
        start = len(BOM) if offset == 0 and block.startswith(BOM) else 0
        if (nul := block.find(b"\0")) >= 0:
            row = line + block.count(b"\n", 0, nul)
            raise InputError(f"{path}: line {row}: a NUL byte at byte {offset + nul}; {_PLAIN}")
        yield _decode(decoder, block[start:], path, offset + start, line)
        offset, line = offset + len(block), line + block.count(b"\n")
    _decode(decoder, b"", path, offset, line)


def _decode(decoder, block: bytes, path: Path, offset: int, line: int) -> str:
    """Text of a block that starts at byte `offset`; an empty block ends the file."""
    begun = len(decoder.getstate()[0])  # bytes of a character that the block before left open
    try:
        return decoder.decode(block, final=not block)
    except UnicodeDecodeError as error:
        row = line + error.object.count(b"\n", 0, error.start)
        byte = offset - begun + error.start
        found = f"undecodable byte 0x{error.object[error.start]:02x} at byte {byte}"
        raise InputError(f"{path}: line {row}: {found}; {_PLAIN}") from None
