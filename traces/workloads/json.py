"""JSON of workload files: strict decoding, and the items of a long list one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np

from traces.common.errors import InputError
from traces.workloads.cells import Column, blocks, lines, millisecond_values, shown, whole_values
from traces.workloads.rows import CHUNK, Piece
from traces.workloads.token_count import TokenCount

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


TIME, PROMPT, OUTPUT = KEYS = ("timestamp", "input_length", "output_length")


@dataclass(frozen=True, slots=True)
class MooncakeFile:
    """One file; other keys, as `hash_ids`, are left alone."""

    path: Path
    unused: tuple[str, ...]  # keys of the first line
    has_times: ClassVar[bool] = True
    time_column: ClassVar[str] = TIME
    per_second: ClassVar[float] = 1e3

    @classmethod
    def of(cls, path: Path) -> MooncakeFile:
        """Reads the first line and refuses a wrong one."""
        for first, texts in lines(path, CHUNK):
            for number, text in enumerate(texts, first):
                if text.strip():
                    node = _request(path, number, text)
                    return cls(path, tuple(key for key in node if key not in KEYS))
        raise InputError(f"{path}: is empty; accepted: one JSON object a line")

    def pieces(self) -> Iterator[Piece]:
        """The file's rows, up to CHUNK lines at a time; blank lines are left out."""
        for first, texts in lines(self.path, CHUNK):
            numbers = [n for n, text in enumerate(texts, first) if text.strip()]
            if numbers:
                nodes = [_request(self.path, n, texts[n - first]) for n in numbers]
                values = ([node[key] for node in nodes] for key in KEYS)
                yield self._piece(np.array(numbers), values)

    def _piece(self, line: np.ndarray, cells: Iterator[Sequence[Any]]) -> Piece:
        time, prompt, output = (
            Column(self.path, name, column, line) for name, column in zip(KEYS, cells)
        )
        return Piece(
            line,
            whole_values(prompt),
            whole_values(output),
            millisecond_values(time),
            time.cells,
        )


def _request(path: Path, number: int, text: str) -> dict[str, Any]:
    """The object of one line, which has KEYS."""
    try:
        node = DECODER.decode(text)
    except FAULTS as error:
        at = f", column {error.pos + 1}" if hasattr(error, "pos") else ""
        raise InputError(
            f"{path}: line {number}{at}: malformed JSON ({fault_text(error)});"
            " accepted: one JSON object a line"
        ) from None
    if not isinstance(node, dict):
        raise InputError(
            f"{path}: line {number}: is {shown(node)}; accepted: an object with {', '.join(KEYS)}"
        )
    missing = [key for key in KEYS if key not in node]
    if missing:
        has = ", ".join(shown(key) for key in list(node)[:8]) or "none"
        raise InputError(
            f"{path}: line {number}: no key {missing[0]}, has {has}; accepted: {', '.join(KEYS)}"
        )
    return node


ITEM = "conversation"
NO_PAIR = "no human turn with a gpt turn after it"
NO_TEXT = "a question or an answer without a token"
SHAPE = 'an object with "conversations": a list of {"from": text, "value": text}'


@dataclass(frozen=True, slots=True)
class ShareGptFile:
    """One file. It has no arrival times; texts are dropped as soon as they are counted."""

    path: Path
    count: TokenCount
    unused: tuple[str, ...]  # keys of the first conversation
    has_times: ClassVar[bool] = False
    time_column: ClassVar[str] = ""
    per_second: ClassVar[float] = 1.0

    @classmethod
    def of(cls, path: Path, count: TokenCount) -> ShareGptFile:
        """Reads the first conversation and refuses a wrong one."""
        for item in ListScanner(path, blocks(path), ITEM).items():
            _turns(path, 1, item)
            return cls(path, count, tuple(key for key in item if key != "conversations"))
        return cls(path, count, ())

    def pieces(self) -> Iterator[Piece]:
        """Up to CHUNK conversations at a time; `line` is the place in the list, from 1."""
        pairs: list[tuple[int, int] | None] = []
        first = 1
        for item in ListScanner(self.path, blocks(self.path), ITEM).items():
            pairs.append(self._lengths(_turns(self.path, first + len(pairs), item)))
            if len(pairs) == CHUNK:
                yield self._piece(first, pairs)
                first, pairs = first + CHUNK, []
        if pairs:
            yield self._piece(first, pairs)

    def _lengths(self, turns: list[tuple[str, str]]) -> tuple[int, int] | None:
        """Tokens of the first human turn and of the first gpt turn after it."""
        texts: list[str] = []
        for speaker, text in turns:
            if speaker == ("human", "gpt")[len(texts)]:
                texts.append(text)
            if len(texts) == 2:
                return self.count(texts[0]), self.count(texts[1])
        return None

    def _piece(self, first: int, pairs: list[tuple[int, int] | None]) -> Piece:
        line = np.arange(first, first + len(pairs))
        paired = np.array([pair is not None for pair in pairs])
        dropped = {} if paired.all() else {NO_PAIR: line[~paired]}
        lengths = [pair for pair in pairs if pair is not None]
        columns = (
            Column(self.path, f"tokens of the {name}", [p[i] for p in lengths], line[paired], ITEM)
            for i, name in enumerate(("question", "answer"))
        )
        prompt, output = map(whole_values, columns)
        piece = Piece(line[paired], prompt, output, dropped=dropped)
        return piece.without((prompt == 0) | (output == 0), NO_TEXT)


def _turns(path: Path, number: int, item: Any) -> list[tuple[str, str]]:
    """(speaker, text) of every turn of one conversation."""

    def refused(what: str, value: Any) -> InputError:
        found = f"{path}: {ITEM} {number}: {what} is {shown(value)}"
        return InputError(f"{found}; accepted: {SHAPE}")

    if not isinstance(item, dict):
        raise refused("it", item)
    if "conversations" not in item:
        has = ", ".join(shown(key) for key in list(item)[:8]) or "none"
        raise InputError(
            f"{path}: {ITEM} {number}: no key conversations, has {has}; accepted: {SHAPE}"
        )
    turns = item["conversations"]
    if not isinstance(turns, list):
        raise refused("conversations", turns)
    for turn in turns:
        if not isinstance(turn, dict):
            raise refused("a turn", turn)
        for key in ("from", "value"):
            if not isinstance(turn.get(key), str):
                raise refused(f"{key!r} of a turn", turn.get(key))
    return [(turn["from"], turn["value"]) for turn in turns]
