"""A ledger that holds open requests only: what it is told goes into sums and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.cost import StepTime
from simulator.engine.arrivals import LazyWorkload, Workload
from simulator.engine.settings import Settings
from simulator.policy import Load, Outcome
from simulator.results.facts import Columns, Ledger, Serving, StepLines, texts_of
from simulator.results.files import RunFiles, write_results
from simulator.results.fold import Book
from simulator.results.invariants import Accounts, check_invariants
from simulator.results.quantiles import EXACT
from simulator.results.summary import Measures, summarise, summary_of


class Events:
    """Lists of (request, value) by name, in the order they were noted."""

    def __init__(self) -> None:
        self._lists: dict[str, list[tuple[int, float]]] = {}
        self.count = 0

    def add(self, name: str, request: int, value: float = 1.0) -> None:
        """Note one."""
        self._lists.setdefault(name, []).append((request, value))
        self.count += 1

    def take(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(n,) requests and (n,) values of `name`, which are forgotten here."""
        pairs = self._lists.pop(name, [])
        self.count -= len(pairs)
        columns = np.array(pairs, float).reshape(-1, 2)
        return columns[:, 0].astype(np.int64), columns[:, 1]


BLOCK = 1 << 16  # rounds, or events, that are taken together


class StreamLedger:
    """As `simulator.results.facts.Ledger`; times are noted in their order, and steps as they end.

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


# ---------------- Runs of any number of requests in memory that does not grow with it.


if TYPE_CHECKING:
    from simulator.engine.run import Job

STREAM_FROM = 100_000  # requests of a run; longer runs are streamed


@contextmanager
def open_ledger(
    settings: Settings,
    workload: Workload | LazyWorkload,
    folder: Path | None,
    domains: tuple[str, ...],
) -> Iterator[Ledger | StreamLedger]:
    """A ledger for a run: in memory, or streamed to temporary files in `folder`.

    Serve its `workload`, which notes the requests that are read from it. Files that `finish` did
    not publish are removed at the end of the block.

    Args:
        folder: of the results; None: in memory, whatever the size.
        domains: names of the recording's.
    """
    if folder is None or len(workload) <= STREAM_FROM:
        yield Ledger(workload)
        return
    with RunFiles(folder) as files:
        yield StreamLedger(
            workload, files, domains, replicas=settings.server.replicas, limits=settings.goodput
        )


def finish(
    job: Job,
    ledger: Ledger | StreamLedger,
    folder: Path,
    *,
    capacity: int | None = None,
    open_end: bool = False,
    near_threshold: int | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Check the run, write its results into `folder`, and return its summary.

    Args:
        capacity: KV blocks of a replica; None: no limit.
        open_end: whether the run may have stopped while requests waited or ran.
        near_threshold, more: see `summarise`.

    Raises:
        InvariantError: the run contradicts itself; nothing is written.
    """
    keys = {"near_threshold": near_threshold, "more": more}
    if isinstance(ledger, StreamLedger):
        measures = ledger.close()
        ledger.accounts.check(capacity, open_end)
        summary = summary_of(job, measures, **keys)
        ledger.files.publish(summary)
        return summary
    facts = ledger.facts(texts_of(job.recording, ledger.workload))
    check_invariants(facts, capacity, open_end)
    summary = summarise(job, facts, **keys)
    write_results(folder, summary, facts, job.recording.domains)
    return summary


__all__ = ["STREAM_FROM", "RunFiles", "StreamLedger", "finish", "open_ledger"]
