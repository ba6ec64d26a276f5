"""What a workload file's readers hand out: rows of requests, and how many there were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

CHUNK = 4096  # requests handed out at a time, at most


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Up to CHUNK requests in the order of their file."""

    time_s: np.ndarray | None  # (n,) float64 since the file's first kept row; None without times
    prompt_tokens: np.ndarray  # (n,) int64
    output_tokens: np.ndarray  # (n,) int64
    domain: list[str] | None  # (n,)
    line: np.ndarray  # (n,) int64 from 1; a conversation's place in the list for sharegpt

    def __len__(self) -> int:
        return len(self.line)


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of a full pass over a file: every request is kept or dropped."""

    kept: int
    dropped: Mapping[str, int]  # by reason


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What one piece of a file holds, before times are made relative to the first kept row."""

    line: np.ndarray  # (n,)
    prompt_tokens: np.ndarray  # (n,)
    output_tokens: np.ndarray  # (n,)
    time: np.ndarray | None = None  # (n,) in the file's own unit
    time_text: Sequence[Any] = ()  # (n,) as written, for messages
    domain: list[str] | None = None
    dropped: Mapping[str, np.ndarray] = field(default_factory=dict)  # lines by reason

    def without(self, drop: np.ndarray, reason: str) -> Piece:
        """The piece without the rows where `drop` (n,) is true; they are listed under `reason`."""
        if not drop.any():
            return self
        keep = np.flatnonzero(~drop)
        return Piece(
            self.line[keep],
            self.prompt_tokens[keep],
            self.output_tokens[keep],
            None if self.time is None else self.time[keep],
            [self.time_text[i] for i in keep] if self.time is not None else (),
            None if self.domain is None else [self.domain[i] for i in keep],
            {**self.dropped, reason: self.line[drop]},
        )
