"""The part of a run that its throughput is measured in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.results.facts import Facts

FULL_BATCH = "full batch"
WHOLE_RUN = "whole run"
STEADY = "without ramps"  # of an open loop


@dataclass(frozen=True, slots=True)
class Window:
    """From `start_s` to `end_s`; both are completions of requests, or the run's own ends."""

    kind: str
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s

    def requests(self, facts: Facts) -> np.ndarray:
        """Requests that end inside: (N,) bool. The one that opens a full-batch window does not."""
        finish_s = facts.requests["finish_s"]
        opened = finish_s >= self.start_s if self.kind == WHOLE_RUN else finish_s > self.start_s
        return opened & (finish_s <= self.end_s)

    def admitted(self, facts: Facts) -> np.ndarray:
        """Requests whose prompt was read, and output 0 emitted, inside: (N,) bool.

        A slot freed at the window's last instant is refilled outside it.
        """
        return self.prefilled(facts) & ~facts.requests["warmup"]

    def prefilled(self, facts: Facts) -> np.ndarray:
        """Requests whose prefill ends inside, warm-up ones too: (N,) bool.

        A prefill that takes no time, at one of the window's ends, lies behind that completion; one
        that takes time and ends there is part of it.
        """
        begin_s, end_s = facts.requests["admitted_s"], facts.requests["first_token_s"]
        opened = (begin_s >= self.start_s) | (end_s > self.start_s)
        closed = end_s <= self.end_s
        return opened & closed & ((begin_s < self.end_s) | (self.kind == WHOLE_RUN))

    def steps(self, facts: Facts) -> np.ndarray:
        """Steps that lie inside: (S,) bool."""
        begin_s = facts.steps["time_s"]
        return (begin_s >= self.start_s) & (begin_s + facts.steps["step_s"] <= self.end_s)


def find_window(facts: Facts) -> Window:
    """The window of a run whose tables are at hand, see `Completions`."""
    finish_s = facts.requests["finish_s"]
    completions = Completions(facts.concurrency, facts.ramp)
    completions.note(np.sort(finish_s[~np.isnan(finish_s)]))
    return completions.window()


class Completions:
    """Ends of requests in the order of time, as many as the window's ends need.

    The window of K clients is the time their batch is full: from the K-th to the K-th-from-last
    completion. Before, clients' first requests are still in it; after, no request replaces one
    that ends. In an open loop a `ramp` of K completions at either end is left out likewise. The
    window is the whole run where that leaves nothing (2 K completions or fewer), and in an open
    loop without a ramp. Rejected requests do not complete.

    While the run goes on, the window can only end later than the K-th completion from the last so
    far: what is over by then is settled. With 2 K completions or fewer nothing is, because the
    window may be the whole run.
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
        """The window if the run ends here."""
        if self._clients is not None and self.count > 2 * self._clients:
            end_s = float(self._recent_s[0])
            if end_s > self._start_s:
                return Window(self._kind, self._start_s, end_s)
        return Window(WHOLE_RUN, 0.0, self.last_s)
