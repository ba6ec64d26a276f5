"""Where the rounds of a streamed run stood: a count for every anchor of the recording."""

from __future__ import annotations

import numpy as np

from traces.recording import Recording

_AT_ONCE = 1 << 12  # anchors whose pools are read together


class AnchorCounts:
    """Rounds by anchor; the memory is that of the recording's anchors, whatever the run."""

    def __init__(self) -> None:
        self._counts = np.zeros(0, np.int64)

    def add(self, anchor: np.ndarray) -> None:
        """Count (n,) rounds."""
        counts = np.bincount(anchor, minlength=len(self._counts))
        if len(counts) > len(self._counts):
            counts[: len(self._counts)] += self._counts
            self._counts = counts
        else:
            self._counts += counts

    def near(self, recording: Recording, below: float) -> int | None:
        """Rounds whose two best target tokens are nearer than `below`; None: not recorded."""
        margin = recording.arrays.get("target_margin")
        if margin is None:
            return None
        return int(self._counts[margin[: len(self._counts)] < below].sum())

    def sampled_error_bound(self, recording: Recording) -> dict[str, float]:
        """Mean and maximum over rounds, see `orders.sampled_fit`."""
        from simulator.orders.sampled_fit import sampled_error_bound

        total = largest = 0.0
        visited = np.flatnonzero(self._counts)
        for first in range(0, len(visited), _AT_ONCE):
            some = visited[first : first + _AT_ONCE]
            bound = sampled_error_bound(recording, some)
            total += float(bound @ self._counts[some])
            largest = max(largest, float(bound.max()))
        return {"mean": total / int(self._counts.sum()), "max": largest}
