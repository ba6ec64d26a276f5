"""Between Hydra's sweeper and its launcher.

Finished runs are left out, failures get their one line and let the other jobs go on, and a sweep
that is interrupted leaves no half runs, whichever launcher it uses.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext
from omegaconf import DictConfig

from simulator.results import discard
from simulator.sweep.claim import Busy, claimed
from simulator.sweep.errors import JobFailed, JobLost
from simulator.sweep.job import Answer, is_elsewhere, not_waiting
from simulator.sweep.loader import Composing
from simulator.sweep.names import job_name
from simulator.sweep.plan import Planned, planned
from simulator.sweep.state import Sweep
from simulator.sweep.submitted import Submitted
from simulator.sweep.watch import Watch
from traces.errors import InputError

ENDING_S = 3.0  # for processes that were told to end
# What launchers raise about a process of theirs that is no more, by class name.
_LOST = ("TerminatedWorkerError", "BrokenProcessPool", "WorkerCrashedError", "NodeDiedError")


@contextmanager
def launched_by(sweep: Sweep) -> Iterator[None]:
    """Within the block, Hydra's sweepers get launchers that keep account in `sweep`."""
    original = Plugins.instantiate_launcher

    def instantiate(
        self: Plugins, hydra_context: HydraContext, task_function: Any, config: DictConfig
    ) -> Launch:
        _quieten_optuna()
        elsewhere = is_elsewhere(config.hydra.launcher._target_)
        loader = Composing(hydra_context.config_loader, config, elsewhere)
        context = HydraContext(config_loader=loader, callbacks=hydra_context.callbacks)
        inner = original(self, context, task_function, config)
        return (Elsewhere if elsewhere else Launch)(inner, loader, config, sweep)

    Plugins.instantiate_launcher = instantiate
    try:
        yield
    finally:
        Plugins.instantiate_launcher = original


def _quieten_optuna() -> None:
    """Optuna and its sweeper report on stderr, whatever logging Hydra sets up."""
    optuna = sys.modules.get("optuna")
    if optuna is not None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        logging.getLogger("hydra_plugins.hydra_optuna_sweeper").setLevel(logging.CRITICAL)


class Failed(JobReturn):
    """A job's failure that was printed already: Hydra prints nothing about it any more."""

    @property
    def return_value(self) -> Any:
        raise self._return_value

    @return_value.setter
    def return_value(self, value: Any) -> None:
        self._return_value = value


class Launch:
    """A launcher whose jobs run one by one in this process."""

    def __init__(self, inner: Any, loader: Composing, config: DictConfig, sweep: Sweep) -> None:
        self._inner, self._loader, self._config, self._sweep = inner, loader, config, sweep

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> list[JobReturn]:
        """Jobs that another process is at work on come last: two sweeps share the work."""
        self._sweep.launch(len(job_overrides), self._config.hydra.sweep.dir)
        jobs = list(enumerate(job_overrides, initial_job_idx))
        found = []
        for index, overrides in jobs:
            with not_waiting():
                found.append(self._one(overrides, index, self._known))
        return [
            answer or self._one(overrides, index, known=True)
            for answer, (index, overrides) in zip(found, jobs, strict=True)
        ]

    def _one(self, overrides: Sequence[str], index: int, known: bool) -> JobReturn | None:
        """Skip or run the job; None where another process is at work on it."""
        skipped = self._skipped(self._plan(overrides)) if known else None
        if skipped is not None:
            return skipped
        (found,) = self._inner.launch([overrides], index)
        name = job_name(found.overrides)
        if found.status == JobStatus.COMPLETED:
            return self._answered(name, found.return_value)
        if isinstance(found._return_value, Busy):
            return None
        return self._failed(name, found._return_value)

    def _answered(self, name: str, answer: Answer) -> JobReturn:
        self._sweep.finish(name, answer.value, answer.skipped)
        return _completed(answer.value)

    @cached_property
    def _known(self) -> bool:
        """Whether there were runs before this sweep, some of which may be finished."""
        with suppress(OSError), os.scandir(self._config.hydra.sweep.dir) as entries:
            return any(entry.is_dir() for entry in entries)
        return False

    def _plan(self, overrides: Sequence[str]) -> Planned:
        config = self._loader.load_sweep_config(self._config, overrides)
        self._loader.keep(overrides, config)
        return planned(overrides, config)

    def _skipped(self, job: Planned) -> JobReturn | None:
        """The answer of a job whose results are there; None for one that is to be run."""
        if not job.is_finished:
            return None
        objective = self._sweep.objective
        try:
            value = objective.value(job.folder) if objective else None
        except InputError:
            return None  # it will say so
        self._sweep.skip(job.name, job.folder, value)
        return _completed(value)

    def _failed(self, name: str, error: BaseException) -> JobReturn:
        """Print why; what is no failure that a job reports is raised.

        A sweeper that looks for the best run is told; the others would stop at it.
        """
        if not isinstance(error, JobFailed):
            raise error
        self._sweep.fail(name, error)
        if "n_trials" not in self._config.hydra.sweeper:
            return _completed(None)
        found = Failed(status=JobStatus.FAILED)
        found.return_value = error
        return found


class Elsewhere(Launch):
    """A launcher whose jobs run in other processes, all at once; they write into our folders."""

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> list[JobReturn]:
        self._sweep.launch(len(job_overrides), self._config.hydra.sweep.dir)
        jobs = [self._plan(overrides) for overrides in job_overrides]
        skipped = [self._skipped(job) for job in jobs]
        rest = [job for job, found in zip(jobs, skipped, strict=True) if found is None]
        answers = iter(self._answers(rest, initial_job_idx) if rest else ())
        return [found or next(answers) for found in skipped]

    def _answers(self, jobs: list[Planned], first: int) -> list[JobReturn]:
        watch = Watch(jobs, lambda job: self._sweep.finish(job.name, None), self._sweep.out)
        submitted = Submitted(self._config.hydra.launcher._target_)
        try:
            with watch, submitted:
                found = self._inner.launch([job.overrides for job in jobs], first)
        except KeyboardInterrupt:
            _tidy(jobs)
            if watch.reader_left:
                raise BrokenPipeError from None
            raise
        except Exception as error:
            found = submitted.answers() or _lost(error, jobs)
        told = [index in watch.seen for index in range(len(jobs))]
        return [self._answer(*each) for each in zip(jobs, found, told, strict=True)]

    def _answer(self, job: Planned, found: JobReturn, told: bool) -> JobReturn:
        if found.status == JobStatus.FAILED:
            return self._failed(job.name, found._return_value)
        answer = found.return_value
        if told:
            self._sweep.consider(job.name, answer.value)
            return _completed(answer.value)
        print(answer.text, end="", file=self._sweep.out, flush=True)
        return self._answered(job.name, answer)


def _completed(value: Any) -> JobReturn:
    found = JobReturn(status=JobStatus.COMPLETED)
    found.return_value = value  # what the sweeper sees
    return found


def _lost(error: Exception, jobs: list[Planned]) -> list[JobReturn]:
    """Answers where a process of the launcher's has died, and with it what the others answered.

    Raises:
        Exception: `error`, if it says something else.
    """
    if type(error).__name__ not in _LOST:
        raise error
    return [_lost_answer(job) for job in jobs]


def _lost_answer(job: Planned) -> JobReturn:
    if job.is_finished:
        return _completed(Answer(None))
    found = JobReturn(status=JobStatus.FAILED)
    found.return_value = JobLost(
        "no answer: a process of the sweep was killed, or out of memory; start it again to go on"
    )
    return found


def _tidy(jobs: Sequence[Planned]) -> None:
    """Remove what interrupted jobs have left, when their processes have ended."""
    until = time.monotonic() + ENDING_S
    rest = [job for job in jobs if job.folder is not None and job.folder.is_dir()]
    while rest:
        rest = [job for job in rest if not _is_tidy(job)]
        if time.monotonic() > until:
            return
        time.sleep(0.05)


def _is_tidy(job: Planned) -> bool:
    with suppress(Busy, OSError), claimed(job.folder, wait=False):
        discard(job.folder)
        return True
    return False
