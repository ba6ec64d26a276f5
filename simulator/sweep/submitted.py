"""Jobs of the submitit launchers (Slurm, or processes here): waited for, and ended with us.

The launcher keeps its jobs to itself, and gives up at the first that has not answered.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Self

from hydra.core.utils import JobReturn, JobStatus

from simulator.sweep.errors import JobLost

ENDING_S = 5.0  # for jobs that were told to end
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
        until = time.monotonic() + ENDING_S
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
