"""JSON of workload files: strict decoding, and the items of a long list one by one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from traces.common.errors import InputError
from traces.common.json import STRICT as DECODER
from traces.common.settings import Section, number, read
from traces.workloads.cells import Column, blocks, lines, millisecond_values, shown, whole_values
from traces.workloads.rows import CHUNK, Piece, RowSource

LONGEST_ITEM = 1 << 24  # characters of one item of a list
_SPACE = re.compile(r"[ \t\n\r]*")
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
                cut = isinstance(error, json.JSONDecodeError) and (  # at the buffer's end, perhaps
                    error.msg.startswith("Unterminated string")
                    or error.pos >= len(self._buffer) - 16
                )
                if cut and self._read_on():
                    if len(self._buffer) - self._at > LONGEST_ITEM:
                        found = f"longer than {LONGEST_ITEM} characters"
                        raise self._refuse(number, found, "one conversation an item") from None
                    continue
                found = f"malformed JSON ({fault_text(error)})"
                raise self._refuse(number, found, "JSON") from None
            if end == len(self._buffer) and self._read_on():  # 12 may be the start of 123
                continue
            self._at = end
            return value

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


def _require(where: str, node: Any, keys: tuple[str, ...], accepted: str) -> None:
    """InputError unless `node` is an object with these keys."""
    if not isinstance(node, dict):
        raise InputError(f"{where} is {shown(node)}; accepted: {accepted}")
    for key in keys:
        if key not in node:
            has = ", ".join(shown(one) for one in list(node)[:8]) or "none"
            raise InputError(f"{where}: no key {key}, has {has}; accepted: {accepted}")


# ---------------- Mooncake's traces: one object a line.


KEYS = ("timestamp", "input_length", "output_length")


def mooncake_source(path: Path) -> RowSource:
    """One file, whose first line is read; other keys, as `hash_ids`, are left alone."""

    def pieces() -> Iterator[Piece]:
        for numbers, nodes in _requests(path):
            line = np.array(numbers)
            time, prompt, output = (
                Column(path, key, [node[key] for node in nodes], line) for key in KEYS
            )
            lengths = whole_values(prompt), whole_values(output)
            yield Piece(line, *lengths, millisecond_values(time), time.cells)

    for _, nodes in _requests(path):
        unused = tuple(key for key in nodes[0] if key not in KEYS)
        return RowSource(path, pieces, KEYS[0], 1e3, unused)
    raise InputError(f"{path}: is empty; accepted: one JSON object a line")


def _requests(path: Path) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
    """Objects with KEYS, at least one and up to CHUNK at a time, and their lines."""
    accepted = f"an object with {', '.join(KEYS)}"
    for first, texts in lines(path, CHUNK):
        found = [(line, text) for line, text in enumerate(texts, first) if text.strip()]
        nodes = []
        for line, text in found:
            where = f"{path}: line {line}"
            try:
                nodes.append(DECODER.decode(text))
            except FAULTS as error:
                at = f", column {error.pos + 1}" if hasattr(error, "pos") else ""
                raise InputError(
                    f"{where}{at}: malformed JSON ({fault_text(error)});"
                    " accepted: one JSON object a line"
                ) from None
            _require(where, nodes[-1], KEYS, accepted)
        if nodes:
            yield [line for line, _ in found], nodes


# ---------------- ShareGPT's conversations: one list.


TokenCount = Callable[[str], int]
ITEM = "conversation"
NO_PAIR = "no human turn with a gpt turn after it"
NO_TEXT = "a question or an answer without a token"
SHAPE = 'an object with "conversations": a list of {"from": text, "value": text}'


def sharegpt_source(path: Path, count: TokenCount) -> RowSource:
    """One file without arrival times, whose first conversation is read."""
    unused = ()
    for item in ListScanner(path, blocks(path), ITEM).items():
        _turns(path, 1, item)
        unused = tuple(key for key in item if key != "conversations")
        break
    return RowSource(path, lambda: _sharegpt_pieces(path, count), None, 1.0, unused)


def _sharegpt_pieces(path: Path, count: TokenCount) -> Iterator[Piece]:
    """Up to CHUNK conversations at a time; `line` is the place in the list, from 1.

    Texts are dropped as soon as they are counted.
    """
    items = enumerate(ListScanner(path, blocks(path), ITEM).items(), 1)
    while some := [
        (number, _lengths(_turns(path, number, item), count))
        for number, item in islice(items, CHUNK)
    ]:
        yield _piece(path, *zip(*some, strict=True))


def _lengths(turns: list[tuple[str, str]], count: TokenCount) -> tuple[int, int] | None:
    """Tokens of the first human turn and of the first gpt turn after it."""
    texts: list[str] = []
    for speaker, text in turns:
        if speaker == ("human", "gpt")[len(texts)]:
            texts.append(text)
        if len(texts) == 2:
            return count(texts[0]), count(texts[1])
    return None


def _piece(path: Path, numbers: Sequence[int], pairs: Sequence[tuple[int, int] | None]) -> Piece:
    line, paired = np.array(numbers), np.array([pair is not None for pair in pairs])
    lengths = list(zip(*filter(None, pairs), strict=True)) or [(), ()]
    prompt, output = (
        whole_values(Column(path, f"tokens of the {name}", cells, line[paired], ITEM))
        for name, cells in zip(("question", "answer"), lengths, strict=True)
    )
    dropped = {} if paired.all() else {NO_PAIR: line[~paired]}
    piece = Piece(line[paired], prompt, output, dropped=dropped)
    return piece.without((prompt == 0) | (output == 0), NO_TEXT)


def _turns(path: Path, number: int, item: Any) -> list[tuple[str, str]]:
    """(speaker, text) of every turn of one conversation."""
    where = f"{path}: {ITEM} {number}"

    def refused(what: str, value: Any) -> InputError:
        return InputError(f"{where}: {what} is {shown(value)}; accepted: {SHAPE}")

    _require(where, item, ("conversations",), SHAPE)
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


# ---------------- How many tokens a text has: by a tokenizer's own file, or by a stated rule.


def token_count(
    path: Path, characters_per_token: float | None, tokenizer: str | PathLike[str] | None
) -> TokenCount:
    """The rule that was asked for, for the texts of `path`; exactly one must be."""
    if (characters_per_token is None) == (tokenizer is None):
        given = "neither" if tokenizer is None else "both"
        raise InputError(
            f"{path}: has texts, not token counts, and {given} of two rules is given; accepted: "
            "one of tokenizer (path of a tokenizer.json) and characters_per_token (a number above "
            "0, such as 4)"
        )
    if tokenizer is not None:
        return _by_tokenizer(Path(tokenizer))
    rule = read(_Rule, {"characters_per_token": characters_per_token}).characters_per_token
    return lambda text: math.ceil(len(text) / rule)


class _Rule(Section):
    characters_per_token: number(1e-3, 1e3)


def _by_tokenizer(path: Path) -> TokenCount:
    """Tokens without special ones around them; what the file cuts or pads is not."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            f"{path}: the tokenizers package is not installed; accepted: an environment with it,"
            " or characters_per_token"
        ) from None
    if not path.is_file():
        raise InputError(f"{path}: no such file; accepted: a tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises bare Exception on a broken file
        found = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: no tokenizer ({found}); accepted: a tokenizer.json") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(text: str) -> int:
        # half a surrogate pair, which JSON may carry and UTF-8 may not, as the replacement mark
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return len(tokenizer.encode(text, add_special_tokens=False))

    return count
