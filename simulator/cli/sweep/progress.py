"""What the process that started a sweep knows of it: counts, failures, the best run."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from simulator.cli.sweep.job import Answer, SweepJob
from simulator.cli.sweep.objective import Objective
from simulator.progress import Progress
from simulator.results.printing import short_path


class Sweep:
    """A sweep under way, with a bar on a terminal.

    Args:
        total: jobs there will be.
        folder: where their results lie.
        objective: whose best value is printed at the end.
    """

    def __init__(self, total: int, folder: Path, objective: Objective | None = None) -> None:
        self.out = sys.stdout  # jobs in this process may redirect it
        self.objective = objective
        self.finished = self.skipped = self.failed = 0
        self.status = 0
        self._total, self._folder = total, folder
        self._best: tuple[float, str] | None = None
        self._bar = Progress(total, "runs")
        self._begun = time.monotonic()

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        self._bar.__exit__()
        if kind is None and self._best is not None:
            value, name = self._best
            print(f"best: {name}: {self.objective.name} {value:.6g}", file=self.out, flush=True)
        if self.finished + self.skipped + self.failed and sys.stderr.isatty():
            took, where = duration(time.monotonic() - self._begun), short_path(self._folder)
            print(f"{self._counts()} in {took}; results in {where}", file=sys.stderr)

    def tell(self, job: SweepJob, answer: Answer) -> None:
        """A job has ended: print what it says. After a failure the others go on."""
        if answer.failure is not None:
            self.failed += 1
            self.status = min(self.status or answer.status, answer.status)
            print(answer.shown(job.name), file=sys.stderr, flush=True)
        else:
            print(answer.text, end="", file=self.out, flush=True)
            self.skipped += answer.skipped
            self.finished += not answer.skipped
            self.consider(job.name, answer.value)
        self.show()

    def consider(self, name: str, value: float | None) -> None:
        """A run's value of the objective, if there is one."""
        if value is None or self.objective is None:
            return
        if self._best is None or self.objective.is_better(value, self._best[0]):
            self._best = value, name

    def show(self, ahead: int = 0) -> None:
        """Time left is estimated from the runs that were not skipped.

        ahead: jobs that have ended, whose lines wait for those before them.
        """
        notes = ((self.skipped, "skipped"), (self.failed, "failed"))
        note = ", ".join(f"{count} {what}" for count, what in notes if count)
        done = self.finished + self.failed + ahead
        self._bar.update(done, total=self._total - self.skipped, note=note)

    def _counts(self) -> str:
        jobs = self.finished + self.skipped + self.failed
        parts = [f"{self.finished} new", f"{self.skipped} skipped"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        return f"{jobs} runs: {', '.join(parts)},"


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
