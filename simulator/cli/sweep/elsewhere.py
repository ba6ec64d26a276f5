"""Jobs in processes of a launcher's, on this machine or on others: Hydra's plugins and submitit.

A plugin is fed jobs that are composed already; their lines are told as soon as their results lie in
our folders.
"""

from __future__ import annotations

import _thread
import base64
import io
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from simulator.cli.survey import Plan
from simulator.cli.sweep.job import Answer, SweepJob, answered_elsewhere, lost
from simulator.results.files import SUMMARY
from simulator.results.printing import print_run
from traces.common.errors import InputError
from traces.common.files import silence_output
from traces.common.json import loads

PERIOD_S = 0.3  # between two looks for results
SHARE = 0.05  # of the time at most goes into looking
ENDING_S = 3.0  # for processes that were told to end
FILES_S = 1  # until a file of a process on this disk is seen
# What launchers raise about a process of theirs that is no more, by class name.
_LOST = ("TerminatedWorkerError", "BrokenProcessPool", "WorkerCrashedError", "NodeDiedError")


def launch(plan: Plan, jobs: list[tuple[int, SweepJob]], lines: Any) -> None:
    """Run numbered jobs by the plan's launcher, all at once; `lines` takes their answers.

    After ^C nothing is left of jobs that had begun.
    """
    if not jobs:
        return
    run = _by_submitit if "submitit" in plan.launcher else _by_plugin
    watch = Watch(jobs, lines)
    try:
        with watch:
            answers = run(plan, [job for _, job in jobs])
    except KeyboardInterrupt:
        _tidy([job for _, job in jobs if job.folder.is_dir()])
        if watch.reader_left:
            raise BrokenPipeError from None
        raise
    for (number, _), answer in zip(jobs, answers, strict=True):
        if number not in watch.seen:
            lines.take(number, answer)


# ---------------- Hydra's plugins.


class _Composed:
    """What a launcher takes for Hydra's loader of configurations: its one override is the job."""

    def load_sweep_config(self, master: DictConfig, overrides: Sequence[str]) -> DictConfig:
        config = OmegaConf.masked_copy(master, ["hydra"])
        with open_dict(config):
            config.job = overrides[0]
            config.hydra.output_subdir = None  # the job itself writes there
            config.hydra.sweep.subdir = "."
        return config


class _NoCallbacks:
    """Of Hydra's, which this project has none of."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def _nothing(**_: Any) -> None:
    """In place of a callback."""


def _performed(config: DictConfig) -> Answer:
    return answered_elsewhere(SweepJob.parsed(base64.b64decode(config.job).decode()))


def _by_plugin(plan: Plan, jobs: list[SweepJob]) -> list[Answer]:
    from hydra.core.plugins import Plugins
    from hydra.types import HydraContext

    config = OmegaConf.masked_copy(plan.shared, ["hydra"])
    with open_dict(config.hydra):
        config.hydra.sweep.dir = os.path.abspath(plan.hydra.sweep.dir)
    launcher = Plugins.instance().instantiate_launcher(
        hydra_context=HydraContext(config_loader=_Composed(), callbacks=_NoCallbacks()),
        task_function=_performed,
        config=config,
    )
    try:
        packed = [base64.b64encode(job.text().encode()).decode() for job in jobs]
        found = launcher.launch([[text] for text in packed], 0)
        return [one.return_value for one in found]
    except Exception as error:
        if type(error).__name__ not in _LOST:
            raise
    why = "a process of the sweep was killed, or out of memory; start it again to go on"
    return [Answer() if job.is_finished() else lost(why) for job in jobs]


# ---------------- submitit, which Hydra's plugin wraps without a way to end its jobs.


def _by_submitit(plan: Plan, jobs: list[SweepJob]) -> list[Answer]:
    here = plan.launcher.endswith(".LocalLauncher")
    executor = _executor(plan, "local" if here else "slurm")
    with _silent() if here else nullcontext():
        submitted = executor.map_array(answered_elsewhere, jobs)
    for one in submitted if here else ():
        one._results_timeout_s = FILES_S
    try:
        return [_answer(one) for one in submitted]
    except BaseException:
        for one in submitted:
            one.cancel(check=False)
        until = time.monotonic() + ENDING_S
        while time.monotonic() < until and not all(one.done() for one in submitted):
            time.sleep(0.05)
        raise


def _executor(plan: Plan, cluster: str) -> Any:
    """As the plugin makes it of the configuration of ``hydra/launcher``."""
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
    from submitit import AutoExecutor

    node = OmegaConf.to_container(plan.hydra.launcher, resolve=True)
    first = {f"{cluster}_{key}": node.pop(key) for key in ("max_num_timeout",) if key in node}
    executor = AutoExecutor(node.pop("submitit_folder"), cluster=cluster, **first)
    shared = BaseQueueConf.__dataclass_fields__
    del node["_target_"]
    executor.update_parameters(
        **{key if key in shared else f"{cluster}_{key}": value for key, value in node.items()}
    )
    return executor


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


def _answer(submitted: Any) -> Answer:
    """What a job returned; a failure where it did not come to that."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        return submitted.results()[0]
    except (FailedJobError, UncompletedJobError) as error:
        said = [line for line in str(error).splitlines() if line.strip()]
        reason = said[-1].strip() if isinstance(error, FailedJobError) else "its process ended"
        return lost(f"{reason} (see {submitted.paths.stderr})")


# ---------------- Results, as they appear.


class Watch:
    """While it is entered, a thread looks for runs that have finished, and tells each once."""

    def __init__(self, jobs: Sequence[tuple[int, SweepJob]], lines: Any) -> None:
        wanted = ((number, job, job.identity()) for number, job in jobs)
        self._open = {number: (job, key) for number, job, key in wanted if key is not None}
        self.seen: set[int] = set()
        self.reader_left = False  # nobody reads our output any more
        self._lines = lines
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> Watch:
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
        for number, (job, key) in list(self._open.items()):
            summary = _summary(job.folder, key)
            if summary is None or self.reader_left:
                continue
            del self._open[number]
            with suppress(InputError):  # which the job says
                value = job.objective.value(job.folder) if job.objective else None
                self._tell(number, Answer(value, text=_line(job, summary)))

    def _tell(self, number: int, answer: Answer) -> None:
        self.seen.add(number)
        try:
            self._lines.take(number, answer)
        except BrokenPipeError:
            self.reader_left = True
            silence_output()
            _thread.interrupt_main()


def _summary(folder: Path, identity: str) -> dict[str, Any] | None:
    """Of the finished run; None where there is none yet, or another configuration's."""
    try:
        summary = loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = isinstance(summary, dict) and summary.get("config_hash") == identity
    return summary if found else None


def _line(job: SweepJob, summary: dict[str, Any]) -> str:
    out = io.StringIO()
    print_run(summary, job.folder, job.name, out)
    return out.getvalue()


def _tidy(jobs: list[SweepJob]) -> None:
    """Remove what interrupted jobs have left, when their processes have ended."""
    until = time.monotonic() + ENDING_S
    while jobs and time.monotonic() < until:
        jobs = [job for job in jobs if not job.tidied()]
        time.sleep(0.05)
