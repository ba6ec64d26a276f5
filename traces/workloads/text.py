"""Text of a workload file, read in blocks, with exact line numbers and byte offsets of faults."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from traces.errors import InputError

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
    _check_regular(path)
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


def _check_regular(path: Path) -> None:
    try:
        found = path.exists()
    except (OSError, ValueError) as error:  # a name too long, a NUL in the name
        raise InputError(f"{str(path)!r}: {error}; accepted: a workload file") from None
    if not found:
        raise InputError(f"{path}: no such file; accepted: a workload file")
    if path.is_dir():
        raise InputError(f"{path}: is a directory; accepted: a workload file")
    if not path.is_file():
        raise InputError(f"{path}: is no regular file; accepted: a file that can be read twice")


def _decoded(file, path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset, line = 0, 1  # of the block's first byte
    while block := file.read(BLOCK_BYTES):
        start = _check_beginning(block, path) if offset == 0 else 0
        if (nul := block.find(b"\0")) >= 0:
            row = line + block.count(b"\n", 0, nul)
            raise InputError(f"{path}: line {row}: a NUL byte at byte {offset + nul}; {_PLAIN}")
        yield _decode(decoder, block[start:], path, offset + start, line)
        offset, line = offset + len(block), line + block.count(b"\n")
    _decode(decoder, b"", path, offset, line)


def _check_beginning(block: bytes, path: Path) -> int:
    """Bytes of the byte-order mark, 0 without one; refuses files of other kinds."""
    for magic, name in _OTHER.items():
        if block.startswith(magic):
            raise InputError(f"{path}: is {name}; accepted: UTF-8 text, unpacked")
    return len(BOM) if block.startswith(BOM) else 0


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
