"""Mooncake traces (arXiv 2407.00079): JSON lines with `timestamp` (ms) and two lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from traces.errors import InputError
from traces.workloads.cells import Column, millisecond_values, shown, whole_values
from traces.workloads.json_text import DECODER, FAULTS, fault_text
from traces.workloads.rows import CHUNK, Piece
from traces.workloads.text import lines

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
