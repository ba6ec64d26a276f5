"""The splits of a recording that may be looked at, as a recording of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from traces.recordings.recording import Recording
from traces.recordings.schema import SPLITS, rows_of


def part_of(recording: Recording, splits: Sequence[str]) -> Recording:
    """Its sequences of these splits, with their anchors; nothing of any other.

    Sequences and anchors keep their order and are numbered anew. Arrays are copied when they are
    asked for. `content_hash` stays that of the whole recording.
    """
    sequences = np.flatnonzero(np.isin(recording["split"], [SPLITS.index(one) for one in splits]))
    part = Recording(recording.meta, _Rows(recording, sequences), recording.source, tuple(splits))
    part.memo("content_hash", lambda: recording.content_hash)
    part.memo("depths", lambda: recording.depths)
    return part


class _Rows(Mapping[str, np.ndarray]):
    """The arrays of a recording, at some sequences (n,) alone."""

    def __init__(self, recording: Recording, sequences: np.ndarray) -> None:
        self._whole, self._sequences = recording, sequences
        self._taken: dict[str, np.ndarray] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._whole.arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole.arrays)

    def __len__(self) -> int:
        return len(self._whole.arrays)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._taken:
            array = self._rows_of(name)
            array.flags.writeable = False
            self._taken[name] = array
        return self._taken[name]

    def _rows_of(self, name: str) -> np.ndarray:
        whole, sequences = self._whole, self._sequences
        array, start = whole[name], whole["seq_offset"]
        if name == "seq_offset":
            lengths = np.diff(start)[sequences]
            return np.concatenate([[0], np.cumsum(lengths)]).astype(array.dtype)
        if name == "anchor_pos":  # positions in `tokens`, which move with their sequence
            moved = start[sequences] - self["seq_offset"][:-1]
            counts = whole.anchor_counts[sequences]
            return (self._within(array, whole.anchor_offset) - np.repeat(moved, counts)).astype(
                array.dtype
            )
        rows = rows_of(name)
        if rows == "S":
            return array[sequences]
        starts = {"T": start, "A": whole.anchor_offset, "P": whole.output_offset}
        return self._within(array, starts[rows]) if rows in starts else array.copy()

    def _within(self, array: np.ndarray, start: np.ndarray) -> np.ndarray:
        """The rows of the sequences, which begin at `start` (S + 1,)."""
        pieces = [array[start[one] : start[one + 1]] for one in self._sequences]
        return np.concatenate([array[:0], *pieces])
