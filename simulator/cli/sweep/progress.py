"""What the process that started a sweep knows of it: answers in order, counts, the best run."""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path

from simulator.cli.sweep.job import Answer, SweepJob
from simulator.cli.sweep.objective import Objective
from simulator.progress import Progress
from simulator.results.printing import short_path


class Sweep:
    """A sweep under way. Lines are told in the jobs' order; a bar on a terminal.

    Args:
        total: jobs there will be.
        folder: where their results lie.
        objective: whose best value is printed at the end.

    Attributes:
        jobs: those whose lines are still to be told, by number.
        values: of the objective, by number; None of a job that failed.
    """

    def __init__(self, total: int, folder: Path, objective: Objective | None = None) -> None:
        self.out = sys.stdout  # jobs in this process may redirect it
        self.jobs: dict[int, SweepJob] = {}
        self.values: dict[int, float | None] = {}
        self.status = 0
        self._objective, self._total, self._folder = objective, total, folder
        self._order: deque[int] = deque()
        self._answers: dict[int, Answer] = {}  # whose lines wait for those before them
        self._new = self._skipped = self._failed = 0
        self._best: tuple[float, str] | None = None
        self._bar = Progress(total, "runs")
        self._begun = time.monotonic()

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        self._bar.__exit__()
        if kind is None and self._best is not None:
            value, name = self._best
            print(f"best: {name}: {self._objective.name} {value:.6g}", file=self.out, flush=True)
        jobs = self._new + self._skipped + self._failed
        if jobs and sys.stderr.isatty():
            failed = f", {self._failed} failed" if self._failed else ""
            counts = f"{jobs} runs: {self._new} new, {self._skipped} skipped{failed},"
            took, where = duration(time.monotonic() - self._begun), short_path(self._folder)
            print(f"{counts} in {took}; results in {where}", file=sys.stderr)

    def expect(self, numbers: range) -> None:
        """These jobs come next."""
        self._order.extend(numbers)
        self._show()

    def put_off(self, number: int) -> None:
        """The job comes last."""
        self._order.remove(number)
        self._order.append(number)

    def take(self, number: int, answer: Answer) -> None:
        """A job has ended: its line, and those that waited for it."""
        self._answers[number] = answer
        while self._order and self._order[0] in self._answers:
            told = self._order.popleft()
            self._tell(told, self.jobs.pop(told), self._answers.pop(told))
        self._show()

    def _tell(self, number: int, job: SweepJob, answer: Answer) -> None:
        """Print what the job says. After a failure the others go on."""
        self.values[number] = value = answer.value
        if answer.failure is not None:
            self._failed += 1
            self.status = min(self.status or answer.status, answer.status)
            line = f"error: {job.name}: {answer.failure}"
            if "\n" in answer.failure:  # a traceback
                line = f"{answer.failure.rstrip()}\nerror: {job.name}: see above"
            print(line, file=sys.stderr, flush=True)
            return
        print(answer.text, end="", file=self.out, flush=True)
        self._skipped += answer.skipped
        self._new += not answer.skipped
        if value is None or self._objective is None:
            return
        if self._best is None or self._objective.is_better(value, self._best[0]):
            self._best = value, job.name

    def _show(self) -> None:
        """Time left is estimated from the runs that were not skipped."""
        notes = ((self._skipped, "skipped"), (self._failed, "failed"))
        note = ", ".join(f"{count} {what}" for count, what in notes if count)
        done = self._new + self._failed + len(self._answers)
        self._bar.update(done, total=self._total - self._skipped, note=note)


def duration(seconds: float) -> str:
    """0.9 s, 12 s, 1 min 5 s, 2 h 3 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"
