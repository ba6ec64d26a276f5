"""Between Hydra's sweeper and its launcher.

Finished runs are left out, failures get their one line and let the other jobs go on, and a sweep
that is interrupted leaves no half runs, whichever launcher it uses.
"""

from __future__ import annotations

import _thread
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from typing import Any, Self

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext
from omegaconf import DictConfig

from simulator.cli.errors import JobFailed, JobLost
from simulator.cli.sweep.compose import Composing
from simulator.cli.sweep.job import Answer, is_elsewhere, job_name, not_waiting
from simulator.cli.sweep.lock import Busy, claimed
from simulator.cli.sweep.progress import Planned, Sweep, planned
from simulator.results.files import discard
from simulator.results.printing import print_run
from traces.common.errors import InputError
from traces.common.files import silence_output
from traces.common.json import loads

SUBMITTED_ENDING_S = 5.0  # for jobs that were told to end
FILES_S = 1  # until a file of a process on this disk is seen


class Submitted:
    """Within the block, the jobs that submitit starts are noted; ^C ends them.

    launcher: its class; others than submitit's start none.
    """

    def __init__(self, launcher: str) -> None:
        self._used = "submitit" in launcher
        self._here = launcher.endswith(".LocalLauncher")
        self._jobs: list[Any] = []

    def __enter__(self) -> Self:
        if self._used:
            from submitit import AutoExecutor

            def map_array(executor: Any, *args: Any) -> list[Any]:
                with _silent() if self._here else nullcontext():
                    self._jobs = super(AutoExecutor, executor).map_array(*args)
                for job in self._jobs if self._here else ():
                    job._results_timeout_s = FILES_S
                return self._jobs

            AutoExecutor.map_array = map_array
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self._used:
            del sys.modules["submitit"].AutoExecutor.map_array  # the inherited one is back
        if kind is not None and not issubclass(kind, Exception):
            self._end()

    def _end(self) -> None:
        for job in self._jobs:
            job.cancel(check=False)
        until = time.monotonic() + SUBMITTED_ENDING_S
        while time.monotonic() < until and not all(job.done() for job in self._jobs):
            time.sleep(0.05)

    def answers(self) -> list[JobReturn]:
        """Of every job, when all of them have ended; none where the launcher started none."""
        return [_answer(job) for job in self._jobs]


@contextmanager
def _silent() -> Iterator[None]:
    """Processes that are started in the block write nothing on our stderr.

    submitit's keepers of local jobs would, a traceback each, when ^C ends them; the jobs
    themselves have logs of their own.
    """
    sys.stderr.flush()
    saved, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nothing)


def _answer(job: Any) -> JobReturn:
    """What a job returned; a failure where it did not come to that."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        return job.results()[0]
    except (FailedJobError, UncompletedJobError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = lines[-1].strip() if isinstance(error, FailedJobError) else "its process ended"
        found = JobReturn(status=JobStatus.FAILED)
        found.return_value = JobLost(f"no answer: {reason} (see {job.paths.stderr})")
        return found


PERIOD_S = 0.3
SHARE = 0.05  # of the time at most goes into looking


class Watch:
    """While it is entered, a thread looks for finished runs; every run is found once.

    Args:
        found: called with each run.
        out: where its line goes.
    """

    def __init__(self, runs: Sequence[Planned], found: Callable[[Planned], None], out) -> None:
        self._open = {i: run for i, run in enumerate(runs) if run.config_hash is not None}
        self.seen: set[int] = set()  # positions in `runs`
        self._found, self._out = found, out
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self.reader_left = False  # nobody reads our output any more

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _look_on(self) -> None:
        pause_s = PERIOD_S
        while not self._stop.wait(pause_s):
            begun = time.monotonic()
            self._look()
            pause_s = max(PERIOD_S, (time.monotonic() - begun) / SHARE)

    def _look(self) -> None:
        for index, run in list(self._open.items()):
            summary = _summary(run)
            if summary is not None:
                del self._open[index]
                self.seen.add(index)
                self._found(run)
                self._tell(run, summary)

    def _tell(self, run: Planned, summary: dict[str, Any]) -> None:
        if self.reader_left:
            return
        try:
            print_run(summary, run.folder, run.name, self._out)
        except BrokenPipeError:
            self.reader_left = True
            silence_output()
            _thread.interrupt_main()


def _summary(run: Planned) -> dict[str, Any] | None:
    """Of the finished run; None where there is none yet, or another configuration's."""
    from simulator.results.files import SUMMARY

    try:
        summary = loads((run.folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = isinstance(summary, dict) and summary.get("config_hash") == run.config_hash
    return summary if found else None


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
