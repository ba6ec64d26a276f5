"""A ledger that holds open requests only: what it is told goes into sums and files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.cost import StepTime
from simulator.invariants import Accounts
from simulator.ledger import Columns, Serving
from simulator.measures import Measures
from simulator.policy import Load, Outcome
from simulator.samples import EXACT
from simulator.step_lines import StepLines
from simulator.stream.book import Book
from simulator.stream.events import Events
from simulator.stream.files import RunFiles
from simulator.workload import LazyWorkload, Workload

BLOCK = 1 << 16  # rounds, or events, that are taken together


class StreamLedger:
    """As `simulator.ledger.Ledger`; times are noted in their order, and steps as they end.

    Args:
        workload: read it through the ledger's `workload`, so that its rows are known here.
        domains: names of the recording's. limits: objectives in milliseconds.
        exact: values of a latency that are held for exact percentiles.
        block: rounds that are folded together.
    """

    def __init__(
        self,
        workload: Workload | LazyWorkload,
        files: RunFiles,
        domains: tuple[str, ...],
        *,
        replicas: int = 1,
        limits: Mapping[str, float] | None = None,
        exact: int = EXACT,
        block: int = BLOCK,
    ) -> None:
        self._block, self.files = block, files
        self._book = Book(workload, files, domains, replicas, limits, exact, block)
        self._events, self._lines = Events(), StepLines()

    @property
    def workload(self):
        """The workload, whose rows are noted as they are read."""
        return self._book.source

    @property
    def accounts(self) -> Accounts:
        """What must add up when the run is over."""
        return self._book.accounts

    # ---------------------------------------------------------------- one event after another

    def expect(self, first: int, columns: Columns) -> None:
        """Rows of the workload that were not read through `self.workload`."""
        self.workload.note(first, columns)

    def arrive(self, request: int, time_s: float) -> None:
        """A request is sent."""
        self._note("arrival_s", request, time_s)

    def admit(self, request: int, time_s: float) -> None:
        """A request leaves the queue; the first time counts."""
        self._note("admitted_s", request, time_s)

    def first_token(self, request: int, time_s: float) -> None:
        """A request's prompt is read and output 0 emitted."""
        self._note("first_token_s", request, time_s)

    def finish(self, request: int, time_s: float) -> None:
        """A request emits its last token."""
        self._note("finish_s", request, time_s)

    def reject(self, request: int, time_s: float) -> None:
        """A request can never be served: it does not finish, and emits nothing."""
        self._note("rejected", request, time_s)

    def preempt(self, request: int) -> None:
        """A request loses its place and what was read of it."""
        self._note("preemptions", request)

    def hand_over(self, request: int) -> None:
        """A request goes on in another sequence."""
        self._note("hand_overs", request)

    def place(self, request: int, replica: int) -> None:
        """A request is sent to a replica; 0 where nothing is said."""
        if replica:
            self._note("replica", request, replica)

    def _note(self, name: str, request: int, value: float = 1.0) -> None:
        self._events.add(name, request, value)
        if self._events.count >= 4 * self._block:
            self._flush()

    def step(
        self,
        load: Load,
        time: StepTime,
        anchor: np.ndarray,
        outcome: Outcome,
        ties: int,
        serving: Serving | None = None,
        **extra_s: float,
    ) -> None:
        """Note one step, see `Ledger.step`."""
        self._lines.add(load, time, anchor, outcome, ties, serving, extra_s)
        if max(self._lines.rounds, len(self._lines)) >= self._block:
            self._flush()

    # ---------------------------------------------------------------- many at once

    def times(self, name: str, request: np.ndarray, time_s: np.ndarray) -> None:
        """Note `name` (arrival_s, admitted_s, first_token_s, finish_s) of (n,) requests."""
        self._flush()
        self._book.times(name, request, time_s)

    def block(self, steps: Columns, rounds: Columns) -> None:
        """Note many steps at once, in order, after those noted before, see `Ledger.block`."""
        self._flush()
        self._book.take(steps, rounds)
        self._book.settle()

    def _flush(self) -> None:
        """Take in what was noted one by one: of each request in the order of its life."""
        if not self._events.count and not len(self._lines):
            return
        take, book = self._events.take, self._book
        for name in ("arrival_s", "admitted_s", "first_token_s"):
            book.times(name, *take(name))
        book.place(*take("replica"))
        for name in ("preemptions", "hand_overs"):
            book.count(name, take(name)[0])
        if len(self._lines):
            book.take(*self._lines.take())
        book.reject(*take("rejected"))
        book.times("finish_s", *take("finish_s"))
        book.settle()

    def close(self) -> Measures:
        """Fold all that is left; the sums of the whole run."""
        self._flush()
        return self._book.close()
