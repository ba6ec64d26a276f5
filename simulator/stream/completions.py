"""The window of a run while the run goes on: which times are settled, and what they belong to."""

from __future__ import annotations

import numpy as np

from simulator.window import FULL_BATCH, STEADY, WHOLE_RUN, Window


class Completions:
    """Ends of requests in the order of time, as many as the window's ends need.

    The full-batch window of K clients ends at the K-th completion from the last. While the run
    goes on, it can only end later than the K-th from the last so far: what is over by then is
    settled. With 2 K completions or fewer nothing is, because the window may be the whole run.
    """

    def __init__(self, clients: int | None, ramp: int = 0) -> None:
        self._kind = STEADY if clients is None else FULL_BATCH
        self._clients, self.count = clients or ramp or None, 0
        self._start_s = self.last_s = 0.0  # the K-th end, and the latest
        self._recent_s = np.zeros(0)  # (K,) at most

    def note(self, finish_s: np.ndarray) -> None:
        """(n,) ends, in order, after those noted before."""
        if not len(finish_s):
            return
        before, self.count = self.count, self.count + len(finish_s)
        self.last_s = max(self.last_s, float(finish_s[-1]))
        if self._clients is None:
            return
        if before < self._clients <= self.count:
            self._start_s = float(finish_s[self._clients - before - 1])
        self._recent_s = np.concatenate([self._recent_s, finish_s])[-self._clients :]

    def settled(self) -> Window | None:
        """The window up to the last settled instant; None: nothing is settled yet."""
        if self._clients is None:
            return Window(WHOLE_RUN, 0.0, self.last_s)
        window = self.window()
        return window if window.kind == self._kind else None

    def window(self) -> Window:
        """The window if the run ends here; see `simulator.window.find_window`."""
        if self._clients is not None and self.count > 2 * self._clients:
            end_s = float(self._recent_s[0])
            if end_s > self._start_s:
                return Window(self._kind, self._start_s, end_s)
        return Window(WHOLE_RUN, 0.0, self.last_s)
