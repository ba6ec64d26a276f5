"""A workload file as an iterable of rows, read from its start in every pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from traces.common.errors import InputError
from traces.workloads.cells import shown

CHUNK = 4096  # requests handed out at a time, at most
DAY_S = 86400
LARGEST_GAP_S = 30 * DAY_S


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


@dataclass(frozen=True, slots=True)
class RowSource:
    """What a format knows of one file."""

    path: Path
    pieces: Callable[[], Iterator[Piece]]  # of at most CHUNK rows, from the file's start
    time_column: str | None  # None: the file has no arrival times
    per_second: float  # of the unit of `Piece.time`
    unused: tuple[str, ...]  # names that are not read, of columns or of the first item's keys


@dataclass(slots=True, eq=False)
class WorkloadFile:
    """Requests of one file; `open_workload` makes it. Iterating over it is `rows()`."""

    path: Path
    format: str
    source: RowSource
    tally: Tally | None = None  # of the last full pass

    @property
    def has_times(self) -> bool:
        """Whether the file says when its requests arrived."""
        return self.source.time_column is not None

    def rows(self) -> RowStream:
        """Iterator over the file's `Rows`, from its start; only one chunk is in memory.

        Raises InputError at the row that cannot be read, and at the end when none was kept.
        """
        return RowStream(self)

    def __iter__(self) -> RowStream:
        return self.rows()


class RowStream(Iterator[Rows]):
    """One pass over a file.

    `largest_gap_s` may be set before the first row: a gap above it is refused.
    """

    def __init__(self, file: WorkloadFile) -> None:
        self.file = file
        self.largest_gap_s: float = LARGEST_GAP_S
        self._left_out: Counter[str] = Counter()  # in the pieces before the one at hand
        self._piece: Piece | None = None
        self._rows = self._read()

    def __next__(self) -> Rows:
        return next(self._rows)

    def close(self) -> None:
        """Leave the file; no rows follow."""
        self._rows.close()

    def dropped_above(self, line: int) -> dict[str, int]:
        """Rows left out above `line`, a line of the rows last handed out, by reason."""
        counts = self._left_out.copy()
        counts.update({r: int((n < line).sum()) for r, n in self._piece.dropped.items()})
        return {reason: count for reason, count in counts.items() if count}

    def _read(self) -> Iterator[Rows]:
        source, kept = self.file.source, 0
        clock = Clock(source)
        for piece in source.pieces():
            self._piece = piece
            if len(piece.line):
                kept += len(piece.line)
                timed = source.time_column is not None
                times = clock.relative_s(piece, self.largest_gap_s) if timed else None
                lengths = piece.prompt_tokens, piece.output_tokens
                yield Rows(times, *lengths, piece.domain, piece.line)
            self._left_out.update({reason: len(n) for reason, n in piece.dropped.items()})
        if not kept:
            found = ", ".join(f"{n} with {why}" for why, n in self._left_out.items())
            raise InputError(
                f"{source.path}: no row is kept ({found or 'none is there'});"
                " accepted: at least one"
            )
        self.file.tally = Tally(kept, dict(self._left_out))


@dataclass(slots=True)
class Clock:
    """Remembers the first and the last row of one pass over a file."""

    source: RowSource
    first: Any = field(default=None, init=False)  # time, in the file's unit
    last: tuple[Any, Any, Any] = field(default=(), init=False)  # time, as written, line

    def relative_s(self, piece: Piece, largest_gap_s: float) -> np.ndarray:
        """(n,) seconds since the first kept row of the file, n at least 1.

        Raises InputError for a time before the one above it, and for a gap above
        `largest_gap_s`, naming both rows.
        """
        if self.first is None:
            self.first = piece.time[0]
            self.last = (piece.time[0], piece.time_text[0], piece.line[0])
        before = np.concatenate([[self.last[0]], piece.time[:-1]])
        gap_s = (piece.time - before) / self.source.per_second
        for bad in (gap_s < 0, gap_s > largest_gap_s):
            if bad.any():
                raise self._refused(piece, int(bad.argmax()), gap_s)
        self.last = (piece.time[-1], piece.time_text[-1], piece.line[-1])
        return (piece.time - self.first) / self.source.per_second

    def _refused(self, piece: Piece, index: int, gap_s: np.ndarray) -> InputError:
        _, text, line = self.last
        if index:
            text, line = piece.time_text[index - 1], piece.line[index - 1]
        found, accepted = "before", "times that do not fall from row to row"
        if gap_s[index] >= 0:
            found = f"{gap_s[index] / DAY_S:.6g} days after"
            most = LARGEST_GAP_S // DAY_S
            accepted = f"gaps of at most {most} days, or max_gap_s, which cuts gaps to it"
        return InputError(
            f"{self.source.path}: line {piece.line[index]}: {self.source.time_column} is"
            f" {shown(piece.time_text[index])}, {found} {shown(text)} of line {line};"
            f" accepted: {accepted}"
        )
