"""A sweep's jobs, run here or by a launcher of Hydra's, in the order and for whom a plan says."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import OmegaConf, open_dict

from simulator.cli.survey import Composer, Plan
from simulator.cli.sweep import pool
from simulator.cli.sweep.job import Answer, SweepJob, answered, found
from simulator.cli.sweep.lock import Busy
from simulator.cli.sweep.progress import Sweep


def is_elsewhere(launcher: str) -> bool:
    """Whether the launcher of that class is another than Hydra's basic one, which is ours."""
    return not launcher.endswith(".BasicLauncher")


def run_sweep(plan: Plan, composer: Composer, sweep: Sweep) -> None:
    """Run the plan's jobs, or let its sweeper call for them; `sweep` keeps account.

    Raises:
        Exception: what a launcher or a sweeper raises by itself.
    """
    folder = Path(os.path.abspath(plan.hydra.sweep.dir))
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(plan.shared, folder / "multirun.yaml")
    runs = Runs(plan, composer, sweep, folder)
    if plan.arguments is not None:
        _search(runs)
        return
    most = plan.hydra.sweeper.max_batch_size or len(plan.jobs)
    for first in range(0, len(plan.jobs), most):
        runs.launch(plan.jobs[first : first + most], first)


class Runs:
    """Runs jobs of a plan, some of them at a time."""

    def __init__(self, plan: Plan, composer: Composer, sweep: Sweep, folder: Path) -> None:
        self.plan, self.composer, self.sweep, self._folder = plan, composer, sweep, folder
        with os.scandir(folder) as entries:  # runs before this sweep may be finished
            self._resumed = any(entry.is_dir() for entry in entries)

    def launch(self, words: Sequence[Sequence[str]], first: int) -> list[float | None]:
        """Run a job for the overrides `words` each, numbered from `first` on; their objectives.

        Lines are printed in the jobs' order, wherever and whenever they run.
        """
        lines = _Lines(self.sweep, first, len(words))
        jobs = self._unfinished(words, first, lines)
        if is_elsewhere(self.plan.launcher):
            from simulator.cli.sweep.elsewhere import launch

            launch(self.plan, list(jobs), lines)
        else:
            self._here(jobs, len(words), lines)
        return lines.values()

    def _unfinished(
        self, words: Sequence[Sequence[str]], first: int, lines: _Lines
    ) -> Iterator[tuple[int, SweepJob]]:
        for number, one in enumerate(words, first):
            job = self.composer.job(one, number, str(self._folder))
            lines.expect(number, job)
            answer = found(job) if self._resumed else None
            if answer is None:
                yield number, job
            else:
                lines.take(number, answer)

    def _here(self, jobs: Iterator[tuple[int, SweepJob]], count: int, lines: _Lines) -> None:
        """In this process, or in several; jobs that another sweep is at work on come last."""
        many = pool.processes(count) if self._only_runs() else 1
        waiting = []
        for number, answer in pool.answers(jobs, many) if many > 1 else _one_by_one(jobs, lines):
            if answer is None:
                waiting.append(number)
                lines.put_off(number)
            else:
                lines.take(number, answer)
        for number in waiting:
            lines.take(number, answered(lines.job(number)))

    def _only_runs(self) -> bool:
        """Whether no job is another task, which prints as it goes and has processes of its own."""
        words = {word for job in self.plan.jobs for word in job if word.startswith("task=")}
        return self.plan.shared.get("task") == "run" and words <= {"task=run"}


def _one_by_one(
    jobs: Iterable[tuple[int, SweepJob]], lines: _Lines
) -> Iterator[tuple[int, Answer | None]]:
    for number, job in jobs:
        try:
            yield number, answered(job, wait=False)
        except Busy:
            yield number, None


class _Lines:
    """Answers of jobs, told in the jobs' order."""

    def __init__(self, sweep: Sweep, first: int, count: int) -> None:
        self._sweep = sweep
        self._order = deque(range(first, first + count))
        self._jobs: dict[int, SweepJob] = {}  # whose lines are still to be told
        self._known: dict[int, Answer] = {}
        self._values = dict.fromkeys(self._order)
        sweep.show()

    def expect(self, number: int, job: SweepJob) -> None:
        """The job of that number is about to run."""
        self._jobs[number] = job

    def job(self, number: int) -> SweepJob:
        return self._jobs[number]

    def take(self, number: int, answer: Answer) -> None:
        """A job has ended: its line, and those that waited for it."""
        self._known[number] = answer
        while self._order and self._order[0] in self._known:
            told = self._order.popleft()
            answer = self._known.pop(told)
            self._values[told] = answer.value
            self._sweep.tell(self._jobs.pop(told), answer)
        self._sweep.show(len(self._known))

    def put_off(self, number: int) -> None:
        """The job comes last."""
        self._order.remove(number)
        self._order.append(number)

    def values(self) -> list[float | None]:
        """Of the objective, by job; None of a job that failed."""
        return list(self._values.values())


# ---------------- Sweepers that search.


class Fed(Launcher):
    """What Hydra's sweepers take for their launcher: it hands their jobs to ours."""

    __module__ = "hydra_plugins.specsim"  # another name of ours: Hydra takes launchers of that
    runs: Runs  # of the one search of a process

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        """Hydra's; nothing is needed."""

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> list[JobReturn]:
        """Run the jobs, and return the number that each is judged by."""
        words = [[*self.runs.composer.hydras, *job] for job in job_overrides]
        return [_returned(value) for value in self.runs.launch(words, initial_job_idx)]


class _Failed(JobReturn):
    """Of a job whose failure was printed: Hydra's own would print it once more."""

    @property
    def return_value(self) -> Any:
        raise SearchFailed


class SearchFailed(Exception):
    """A job of a search has failed."""


def _returned(value: float | None) -> JobReturn:
    if value is None:
        return _Failed(status=JobStatus.FAILED)
    found = JobReturn(status=JobStatus.COMPLETED)
    found.return_value = value
    return found


def _search(runs: Runs) -> None:
    from hydra.core.plugins import Plugins
    from hydra.types import HydraContext

    sys.modules[Fed.__module__] = sys.modules[__name__]
    Plugins.instance().register(Fed)
    Fed.runs, shared = runs, runs.plan.shared
    config = OmegaConf.masked_copy(shared, list(shared))
    with open_dict(config.hydra):
        config.hydra.launcher = {"_target_": f"{Fed.__module__}.{Fed.__name__}"}
    context = HydraContext(config_loader=runs.composer.loader, callbacks=None)
    sweeper = Plugins.instance().instantiate_sweeper(
        hydra_context=context, task_function=answered, config=config
    )
    _quieten_optuna()
    with suppress(SearchFailed):  # which was printed
        sweeper.sweep(list(runs.plan.arguments))


def _quieten_optuna() -> None:
    """Optuna and its sweeper report on stderr, whatever logging Hydra sets up."""
    optuna = sys.modules.get("optuna")
    if optuna is not None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        logging.getLogger("hydra_plugins.hydra_optuna_sweeper").setLevel(logging.CRITICAL)
