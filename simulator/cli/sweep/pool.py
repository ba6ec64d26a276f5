"""Jobs on the cores of this machine: processes that share what was loaded before they began."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from simulator import compiling
from simulator.cli.sweep.job import Answer, SweepJob, answered, lost
from simulator.cli.sweep.lock import Busy
from simulator.progress import hidden

MANY = 16  # jobs from which on processes pay that have to load everything themselves
ENDING_S = 3.0  # for processes that were told to end
LOST = "its process was killed, or out of memory; start the sweep again to go on"


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _method() -> str:
    """How processes start: as copies of this one where its libraries take it."""
    copies = sys.platform == "linux" and "torch" not in sys.modules
    return "fork" if copies else "spawn"


def processes(jobs: int) -> int:
    """For so many runs; 1: they run faster in this one."""
    if jobs < (2 if _method() == "fork" else MANY):
        return 1
    return min(cores(), jobs)


class _Worker:
    """A process that has one job at a time."""

    def __init__(self, others: Iterable[_Worker], count: int) -> None:
        context = multiprocessing.get_context(_method())
        self.pipe, side = context.Pipe()
        copied = [self.pipe, *(one.pipe for one in others)] if _method() == "fork" else []
        self._process = context.Process(target=_work, args=(side, copied, count))
        sys.stdout.flush()  # what waits there would be printed by both
        sys.stderr.flush()
        self._process.start()
        side.close()
        self.has: tuple[int, SweepJob] | None = None

    def give(self, number: int, job: SweepJob) -> None:
        self.has = number, job
        with suppress(OSError):  # of a dead one, which is found out when its answer is read
            self.pipe.send(job)

    def answer(self) -> tuple[int, Answer | None]:
        """To the job that it has, which it has no longer.

        Raises:
            EOFError: it is dead.
        """
        try:
            answer = self.pipe.recv()
        except OSError as error:
            raise EOFError from error
        (number, _), self.has = self.has, None
        return number, answer

    def end(self, patience_s: float) -> None:
        """Let it end by itself, then end it."""
        self.pipe.close()
        self._process.join(patience_s)
        for told in (signal.SIGINT, signal.SIGKILL):
            if self._process.is_alive():
                os.kill(self._process.pid, told)
                self._process.join(ENDING_S)
        if self.has is not None:
            self.has[1].tidied()


def _work(pipe: Connection, copied: Iterable[Connection], count: int) -> None:
    """Answer jobs until the other end is closed, as it is when its process dies."""
    compiling.sharers = count
    for other in copied:  # else it would stay open as long as we hold it
        other.close()
    with suppress(KeyboardInterrupt, EOFError, OSError), hidden():
        while True:
            job = pipe.recv()
            try:
                pipe.send(answered(job, wait=False, captured=True))
            except Busy:
                pipe.send(None)


def answers(
    jobs: Iterator[tuple[int, SweepJob]], count: int
) -> Iterator[tuple[int, Answer | None]]:
    """Run the jobs in `count` processes; number and answer of each, as they end.

    None in place of an answer: a process of another sweep is at work on the job.
    """
    gc.collect()
    gc.freeze()  # what is here now is shared: nobody writes to it any more
    workers: list[_Worker] = []
    patience_s = 0.5  # ^C on a terminal has reached them too
    try:
        for _ in range(count):
            workers.append(_Worker(workers, count))
        yield from _shared_out(jobs, workers)
        patience_s = ENDING_S
    finally:
        gc.unfreeze()
        for worker in workers:
            worker.end(patience_s)


def _shared_out(
    jobs: Iterator[tuple[int, SweepJob]], workers: list[_Worker]
) -> Iterator[tuple[int, Answer | None]]:
    ready: deque[tuple[int, SweepJob]] = deque()  # composed while others run
    while True:
        for worker in workers:
            if worker.has is None and (ready or _more(jobs, ready)):
                worker.give(*ready.popleft())
        while len(ready) < len(workers) and _more(jobs, ready):
            pass
        at_work = {worker.pipe: worker for worker in workers if worker.has is not None}
        if not at_work:
            return
        for pipe in wait(at_work):
            worker = at_work[pipe]
            try:
                yield worker.answer()
            except EOFError:
                worker.end(0)
                workers.remove(worker)
                workers.append(_Worker(workers, len(workers) + 1))
                yield worker.has[0], lost(LOST)


def _more(jobs: Iterator[tuple[int, SweepJob]], ready: deque[tuple[int, SweepJob]]) -> bool:
    """Add the next job to those that are ready; whether there was one."""
    found = next(jobs, None)
    if found is not None:
        ready.append(found)
    return found is not None
