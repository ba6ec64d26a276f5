"""A sweep's jobs, run here or by a launcher of Hydra's, in the order and for whom a plan says."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import OmegaConf, open_dict

from simulator.cli.survey import Composer, Plan
from simulator.cli.sweep import pool
from simulator.cli.sweep.job import Answer, SweepJob, answered, found
from simulator.cli.sweep.lock import Busy
from simulator.cli.sweep.progress import Sweep


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
        self.plan, self.composer, self._sweep, self._folder = plan, composer, sweep, folder
        with os.scandir(folder) as entries:  # runs before this sweep may be finished
            self._resumed = any(entry.is_dir() for entry in entries)

    def launch(self, words: Sequence[Sequence[str]], first: int) -> list[float | None]:
        """Run a job for the overrides `words` each, numbered from `first` on; their objectives.

        Lines are printed in the jobs' order, wherever and whenever they run.
        """
        numbers = range(first, first + len(words))
        self._sweep.expect(numbers)
        jobs = self._unfinished(words, first)
        if self.plan.launcher.endswith(".BasicLauncher"):  # Hydra's, which is ours
            self._here(jobs, len(words))
        else:
            from simulator.cli.sweep.elsewhere import launch

            launch(self.plan, list(jobs), self._sweep)
        return [self._sweep.values.get(number) for number in numbers]

    def _unfinished(
        self, words: Sequence[Sequence[str]], first: int
    ) -> Iterator[tuple[int, SweepJob]]:
        for number, one in enumerate(words, first):
            job = self.composer.job(one, number, str(self._folder))
            self._sweep.jobs[number] = job
            answer = found(job) if self._resumed else None
            if answer is None:
                yield number, job
            else:
                self._sweep.take(number, answer)

    def _here(self, jobs: Iterator[tuple[int, SweepJob]], count: int) -> None:
        """In this process, or in several; jobs that another sweep is at work on come last."""
        tasks = {word for job in self.plan.jobs for word in job if word.startswith("task=")}
        # Another task prints as it goes, and has processes of its own.
        runs = self.plan.shared.get("task") == "run" and tasks <= {"task=run"}
        many = pool.processes(count) if runs else 1
        waiting = []
        for number, answer in pool.answers(jobs, many) if many > 1 else _one_by_one(jobs):
            if answer is None:
                waiting.append(number)
                self._sweep.put_off(number)
            else:
                self._sweep.take(number, answer)
        for number in waiting:
            self._sweep.take(number, answered(self._sweep.jobs[number]))


def _one_by_one(jobs: Iterable[tuple[int, SweepJob]]) -> Iterator[tuple[int, Answer | None]]:
    for number, job in jobs:
        try:
            yield number, answered(job, wait=False)
        except Busy:
            yield number, None


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
        found = []
        for value in self.runs.launch(words, initial_job_idx):
            done = JobReturn(status=JobStatus.COMPLETED)
            done.return_value = value
            found.append(_Failed(status=JobStatus.FAILED) if value is None else done)
        return found


class _Failed(JobReturn):
    """Of a job whose failure was printed: Hydra's own would print it once more."""

    @property
    def return_value(self) -> Any:
        raise SearchFailed


class SearchFailed(Exception):
    """A job of a search has failed."""


def _search(runs: Runs) -> None:
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
    optuna = sys.modules.get("optuna")
    if optuna is not None:  # it and its sweeper report on stderr, whatever logging Hydra sets up
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        logging.getLogger("hydra_plugins.hydra_optuna_sweeper").setLevel(logging.CRITICAL)
    with suppress(SearchFailed):  # which was printed
        sweeper.sweep(list(runs.plan.arguments))
