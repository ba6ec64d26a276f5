"""A workload file as an iterable of rows, read from its start in every pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from traces.errors import InputError
from traces.workloads.clock import LARGEST_GAP_S, Clock
from traces.workloads.rows import Piece, Rows, Tally


class Source(Protocol):
    """What a format knows of one file."""

    path: Path
    has_times: bool
    time_column: str  # for messages
    per_second: float  # of the unit of `Piece.time`
    unused: tuple[str, ...]  # names that are not read, of columns or of the first item's keys

    def pieces(self) -> Iterator[Piece]:
        """The file's rows in pieces of at most `rows.CHUNK`, from its start."""


@dataclass(slots=True, eq=False)
class WorkloadFile:
    """Requests of one file; `open_workload` makes it. Iterating over it is `rows()`."""

    path: Path
    format: str
    source: Source
    tally: Tally | None = None  # of the last full pass; None before one

    @property
    def has_times(self) -> bool:
        return self.source.has_times

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
        source = self.file.source
        clock = Clock(source.path, source.time_column, source.per_second)
        kept = 0
        for piece in source.pieces():
            self._piece = piece
            if len(piece.line):
                kept += len(piece.line)
                times = clock.relative_s(piece, self.largest_gap_s) if source.has_times else None
                yield Rows(
                    times, piece.prompt_tokens, piece.output_tokens, piece.domain, piece.line
                )
            self._left_out.update({reason: len(n) for reason, n in piece.dropped.items()})
        if not kept:
            found = ", ".join(f"{n} with {why}" for why, n in self._left_out.items())
            raise InputError(
                f"{source.path}: no row is kept ({found or 'none is there'});"
                " accepted: at least one"
            )
        self.file.tally = Tally(kept, dict(self._left_out))
