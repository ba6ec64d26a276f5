"""JSON of workload files: strict decoding, and the items of a long list one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from traces.errors import InputError

LONGEST_ITEM = 1 << 24  # characters of one item of a list
_SPACE = re.compile(r"[ \t\n\r]*")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    node = dict(pairs)
    if len(node) < len(pairs):
        raise ValueError("an object has one key twice")
    return node


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
FAULTS = (ValueError, RecursionError)  # what decoding raises


def fault_text(error: BaseException) -> str:
    """What is wrong with a text, without its position."""
    if isinstance(error, RecursionError):
        return "nested too deep"
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


class ListScanner:
    """The items of one JSON list, decoded as its text comes in; the text is not kept."""

    def __init__(self, path: Path, texts: Iterator[str], item: str) -> None:
        self._path, self._texts, self._item = path, texts, item
        self._buffer, self._at, self._line = "", 0, 1  # the line that the buffer starts in

    def items(self) -> Iterator[Any]:
        """Raises InputError where the text is no JSON list, naming the item and the line."""
        found = self._next_mark()
        if not found:
            raise InputError(f"{self._path}: is empty; accepted: a JSON list")
        if found != "[":
            raise self._refuse(0, f"starts with {found!r}", "a JSON list, [...]")
        self._at += 1
        number, mark = 0, ","
        if self._next_mark() == "]":
            self._at, mark = self._at + 1, "]"
        while mark == ",":
            number += 1
            yield self._value(number)
            mark = self._next_mark()
            if mark not in (",", "]"):
                found = f"{mark!r} after it" if mark else "the file ends after it"
                raise self._refuse(number, found, "',' or ']'")
            self._at += 1
        if rest := self._next_mark():
            raise self._refuse(number, f"{rest!r} after the list's end", "one list")

    def _next_mark(self) -> str:
        """The next character that is no white space, not yet consumed; empty at the end."""
        while True:
            self._at = _SPACE.match(self._buffer, self._at).end()
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._read_on():
                return ""

    def _value(self, number: int) -> Any:
        self._next_mark()
        while True:
            try:
                value, end = DECODER.raw_decode(self._buffer, self._at)
            except FAULTS as error:
                if _may_be_cut(error, len(self._buffer)) and self._read_on():
                    self._check_size(number)
                    continue
                raise self._refuse(
                    number, f"malformed JSON ({fault_text(error)})", "JSON"
                ) from None
            if end == len(self._buffer) and self._read_on():  # 12 may be the start of 123
                continue
            self._at = end
            return value

    def _check_size(self, number: int) -> None:
        if len(self._buffer) - self._at > LONGEST_ITEM:
            found = f"longer than {LONGEST_ITEM} characters"
            raise self._refuse(number, found, "one conversation an item")

    def _read_on(self) -> bool:
        """Take in as much text again as is waiting, so that an item is decoded few times."""
        self._line += self._buffer.count("\n", 0, self._at)
        parts, wanted = [self._buffer[self._at :]], len(self._buffer) - self._at
        self._at, added = 0, 0
        for text in self._texts:
            parts.append(text)
            added += len(text)
            if added >= max(wanted, 1):
                break
        self._buffer = "".join(parts)
        return added > 0

    def _refuse(self, number: int, found: str, accepted: str) -> InputError:
        line = self._line + self._buffer.count("\n", 0, self._at)
        where = f"{self._path}: line {line}: " + (f"{self._item} {number}: " if number else "")
        return InputError(f"{where}{found}; accepted: {accepted}")


def _may_be_cut(error: BaseException, length: int) -> bool:
    """Whether a decoding fault may come from a text that goes on beyond the buffer."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= length - 16
