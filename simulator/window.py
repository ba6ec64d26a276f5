"""The part of a run that its throughput is measured in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.ledger import Facts

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
    """The time the batch is full: from the K-th to the K-th-from-last completion of K clients.

    Before, clients' first requests are still in it; after, no request replaces one that ends. The
    whole run where that leaves nothing (2 K completions or fewer), and in an open loop. Rejected
    requests do not complete. An open loop with a `ramp` of K completions at either end likewise.
    """
    finish_s = facts.requests["finish_s"]
    finish_s = np.sort(finish_s[~np.isnan(finish_s)])
    edge, kind = facts.ramp, STEADY
    if facts.concurrency is not None:
        edge, kind = facts.concurrency, FULL_BATCH
    if edge and len(finish_s) > 2 * edge:
        start_s, end_s = float(finish_s[edge - 1]), float(finish_s[-edge])
        if end_s > start_s:
            return Window(kind, start_s, end_s)
    return Window(WHOLE_RUN, 0.0, facts.duration_s)
