"""Requests that are over, in the order they ended, until they are settled."""

from __future__ import annotations

import numpy as np


class Ended:
    """(request, time) in the order of time, of equals in that of being noted."""

    def __init__(self) -> None:
        self._requests: list[np.ndarray] = []
        self._times: list[np.ndarray] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, request: np.ndarray, time_s: np.ndarray) -> None:
        """(n,) requests that ended, or were rejected, no earlier than any that `until` gave."""
        if len(request):
            self._requests.append(request)
            self._times.append(time_s)
            self._count += len(request)

    def until(self, time_s: float) -> np.ndarray:
        """(n,) requests that ended before `time_s`, which are forgotten here."""
        if not self._count:
            return np.zeros(0, np.int64)
        requests, times = np.concatenate(self._requests), np.concatenate(self._times)
        order = np.argsort(times, kind="stable")
        requests, times = requests[order], times[order]
        count = int(np.searchsorted(times, time_s))
        self._requests, self._times = [requests[count:]], [times[count:]]
        self._count -= count
        return requests[:count]
