"""ShareGPT: a JSON list of conversations; lengths of the first question and its answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from traces.errors import InputError
from traces.workloads.cells import Column, shown, whole_values
from traces.workloads.json_text import ListScanner
from traces.workloads.rows import CHUNK, Piece
from traces.workloads.text import blocks
from traces.workloads.token_count import TokenCount

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
