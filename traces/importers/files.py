"""The files of others, read whole, paths for ours, and what an import says."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traces.common.errors import InputError
from traces.common.json import LENIENT, STRICT
from traces.importers.node import Node, cut
from traces.workloads.json import FAULTS, fault_text


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of another program, read whole; nothing that it names is opened."""

    path: Path
    data: bytes = field(repr=False)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def described(self) -> dict[str, str]:
        """What results keep of the file: its name without folders, and its content's hash."""
        return {"name": printable(self.name), "sha256": self.sha256}

    def text(self) -> str:
        """The file as text; InputError if it is not UTF-8."""
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.path}: byte {error.start} is no UTF-8 text; accepted: a text file"
            ) from None

    def json(self) -> Node:
        """The file as JSON. Raises InputError with line and column, also for a key given twice."""
        return Node(str(self.path), "", self._decoded(STRICT, self.text(), 1))

    def json_objects(self) -> list[Node]:
        """The objects of a JSON list, of lines of JSON, or the one object that the file is."""
        text = self.text()
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) > 1 and all(line.lstrip().startswith("{") for _, line in lines):
            return [
                Node(str(self.path), f"line {number}:", self._decoded(LENIENT, line, number))
                for number, line in lines
            ]
        node = Node(str(self.path), "", self._decoded(LENIENT, text, 1))
        return node.entries() if isinstance(node.value, list) else [node]

    def _decoded(self, decoder: json.JSONDecoder, text: str, line: int) -> Any:
        try:
            return decoder.decode(text)
        except FAULTS as error:
            place = f"line {line}"
            if isinstance(error, json.JSONDecodeError):
                place = f"line {line + error.lineno - 1} column {error.colno}"
            raise InputError(
                f"{self.path}: {place}: malformed JSON ({fault_text(error)}); accepted: JSON"
            ) from None


def read_sources(paths: Sequence[Path]) -> list[InputFile]:
    """The files in the given order.

    Raises:
        InputError: one that is missing, no regular file, or given twice.
    """
    sources, seen = [], set()
    for path in paths:
        real = os.path.realpath(path)  # which, other than resolve(), takes links in a circle
        if real in seen:
            raise InputError(f"{path}: given twice; accepted: every file once")
        seen.add(real)
        if not path.is_file():  # a pipe or a device might never end
            found = "not a regular file" if path.exists() else "no such file"
            raise InputError(f"{path}: {found}; accepted: a file")
        try:
            sources.append(InputFile(path, path.read_bytes()))
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; accepted: a file to read") from None
    return sources


def check_out(
    out: Path, ending: str, sources: Sequence[InputFile], beside: Sequence[str] = ()
) -> None:
    """Raise InputError for a result of another ending, or one that would replace a source.

    beside: endings of the files written beside it.
    """
    if out.suffix != ending or out.stem.startswith("."):
        raise InputError(f"--out is {out}; accepted: a path that ends in {ending}")
    written = {os.path.realpath(out.with_suffix(end)) for end in (ending, *beside)}
    for source in sources:
        if os.path.realpath(source.path) in written:
            raise InputError(f"--out is {out}; accepted: a path that is none of the files read")
    for path in (out, *map(out.with_suffix, beside)):
        if path.is_dir():
            raise InputError(f"--out is {out}, and {path} a folder; accepted: paths of files")


def printable(text: str) -> str:
    """`text` in one line, with what no output could encode escaped."""
    return " ".join(text.encode("utf-8", "backslashreplace").decode().split())


# ---------------- What an import says: what was read, what the source lacks, what was written.


MOST_KEYS = 40  # in a line


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Lines for the user; `lacks` is what the written result carries, word for word.

    warnings: about what was taken as it is and may be a mistake; said on stderr.
    """

    read: tuple[str, ...]
    lacks: tuple[str, ...]
    written: tuple[Path, ...]
    warnings: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        return [
            *(f"read {line}" for line in self.read),
            *(f"lacks: {line}" for line in self.lacks),
            *(f"wrote {path}" for path in self.written),
        ]


def read_line(source: InputFile, what: str, unused: Iterable[str] = ()) -> str:
    """A file, what was found in it, and the keys that were not used."""
    line = f"{source.path}: {what}; sha256 {source.sha256[:12]}"
    names = sorted(set(unused))
    if not names:
        return line
    more = f" and {len(names) - MOST_KEYS} more" if len(names) > MOST_KEYS else ""
    return f"{line}; keys not used: {', '.join(map(cut, names[:MOST_KEYS]))}{more}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """ "1 round", "2 rounds"."""
    return f"{number} {one if number == 1 else many or one + 's'}"
