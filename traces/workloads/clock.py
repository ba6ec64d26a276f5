"""Times of a file as seconds since its first kept row, and the times it may not have."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from traces.errors import InputError
from traces.workloads.cells import shown
from traces.workloads.rows import Piece

DAY_S = 86400
LARGEST_GAP_S = 30 * DAY_S


@dataclass(slots=True)
class Clock:
    """Remembers the first and the last row of one pass over a file."""

    path: Path
    column: str
    per_second: float  # of the file's unit
    _first: Any = field(default=None, init=False)
    _last: tuple[Any, Any, Any] = field(default=(), init=False)  # time, as written, line

    def relative_s(self, piece: Piece, largest_gap_s: float) -> np.ndarray:
        """(n,) seconds since the first kept row of the file, n at least 1.

        Raises InputError for a time before the one above it, and for a gap above
        `largest_gap_s`, naming both rows.
        """
        if self._first is None:
            self._first = piece.time[0]
            self._last = (piece.time[0], piece.time_text[0], piece.line[0])
        before = np.concatenate([[self._last[0]], piece.time[:-1]])
        gap_s = (piece.time - before) / self.per_second
        for bad in (gap_s < 0, gap_s > largest_gap_s):
            if bad.any():
                raise self._refused(piece, int(bad.argmax()), gap_s)
        self._last = (piece.time[-1], piece.time_text[-1], piece.line[-1])
        return (piece.time - self._first) / self.per_second

    def _refused(self, piece: Piece, index: int, gap_s: np.ndarray) -> InputError:
        _, text, line = self._last
        if index:
            text, line = piece.time_text[index - 1], piece.line[index - 1]
        here = f"{self.path}: line {piece.line[index]}: {self.column} is"
        here += f" {shown(piece.time_text[index])}"
        if gap_s[index] < 0:
            return InputError(
                f"{here}, before {shown(text)} of line {line};"
                " accepted: times that do not fall from row to row"
            )
        return InputError(
            f"{here}, {gap_s[index] / DAY_S:.6g} days after {shown(text)} of line {line};"
            f" accepted: gaps of at most {LARGEST_GAP_S // DAY_S} days, or max_gap_s, which cuts"
            " gaps to it"
        )
