"""Jobs in processes of a launcher's, on this machine or on others: Hydra's plugins and submitit.

A plugin is fed jobs that are composed already; their lines are told as soon as their results lie in
our folders.
"""

from __future__ import annotations

import _thread
import io
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from types import SimpleNamespace
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from simulator.cli.survey import Plan
from simulator.cli.sweep.job import Answer, SweepJob, answered_elsewhere, lost
from simulator.cli.sweep.progress import Sweep
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


def launch(plan: Plan, jobs: list[tuple[int, SweepJob]], sweep: Sweep) -> None:
    """Run numbered jobs by the plan's launcher, all at once; `sweep` takes their answers.

    After ^C nothing is left of jobs that had begun.
    """
    if not jobs:
        return
    run = _by_submitit if "submitit" in plan.launcher else _by_plugin
    watch = Watch(jobs, sweep)
    try:
        with watch:
            answers = run(plan, [job for _, job in jobs])
    except KeyboardInterrupt:
        left, until = [job for _, job in jobs if job.folder.is_dir()], time.monotonic() + ENDING_S
        while left and time.monotonic() < until:  # until their processes have ended
            left = [job for job in left if not job.tidied()]
            time.sleep(0.05)
        if watch.reader_left:
            raise BrokenPipeError from None
        raise
    for (number, _), answer in zip(jobs, answers, strict=True):
        if number not in watch.seen:
            sweep.take(number, answer)


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


def _nothing(**_: Any) -> None:
    """In place of Hydra's callbacks, which this project has none of."""


def _performed(config: DictConfig) -> Answer:
    return answered_elsewhere(SweepJob.parsed(bytes.fromhex(config.job).decode()))


def _by_plugin(plan: Plan, jobs: list[SweepJob]) -> list[Answer]:
    from hydra.core.plugins import Plugins
    from hydra.types import HydraContext

    config = OmegaConf.masked_copy(plan.shared, ["hydra"])
    with open_dict(config.hydra):
        config.hydra.sweep.dir = os.path.abspath(plan.hydra.sweep.dir)
    callbacks = SimpleNamespace(on_job_start=_nothing, on_job_end=_nothing)
    launcher = Plugins.instance().instantiate_launcher(
        hydra_context=HydraContext(config_loader=_Composed(), callbacks=callbacks),
        task_function=_performed,
        config=config,
    )
    try:
        done = launcher.launch([[job.text().encode().hex()] for job in jobs], 0)
        return [one.return_value for one in done]
    except Exception as error:
        if type(error).__name__ not in _LOST:
            raise
    why = "a process of the sweep was killed, or out of memory; start it again to go on"
    return [Answer() if job.is_finished() else lost(why) for job in jobs]


# ---------------- submitit, which Hydra's plugin wraps without a way to end its jobs.


def _by_submitit(plan: Plan, jobs: list[SweepJob]) -> list[Answer]:
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
    from submitit import AutoExecutor

    here = plan.launcher.endswith(".LocalLauncher")
    cluster = "local" if here else "slurm"
    # As the plugin makes an executor of the configuration of ``hydra/launcher``.
    node = OmegaConf.to_container(plan.hydra.launcher, resolve=True)
    del node["_target_"]
    first = {f"{cluster}_{key}": node.pop(key) for key in ("max_num_timeout",) if key in node}
    executor = AutoExecutor(node.pop("submitit_folder"), cluster=cluster, **first)
    shared = BaseQueueConf.__dataclass_fields__
    executor.update_parameters(
        **{key if key in shared else f"{cluster}_{key}": value for key, value in node.items()}
    )
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


@contextmanager
def _silent() -> Iterator[None]:
    """Processes that are started in the block write nothing on our stderr.

    submitit's keepers of local jobs would, a traceback each, when ^C ends them; the jobs
    themselves have logs of their own.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


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

    def __init__(self, jobs: Sequence[tuple[int, SweepJob]], sweep: Sweep) -> None:
        wanted = ((number, job, job.identity()) for number, job in jobs)
        self._open = {number: (job, key) for number, job, key in wanted if key is not None}
        self.seen: set[int] = set()
        self.reader_left = False  # nobody reads our output any more
        self._sweep = sweep
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
            if self.reader_left:
                return
            try:
                summary = loads((job.folder / SUMMARY).read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if not (isinstance(summary, dict) and summary.get("config_hash") == key):
                continue  # another configuration's
            del self._open[number]
            with suppress(InputError):  # which the job says
                value = job.objective.value(job.folder) if job.objective else None
                line = io.StringIO()
                print_run(summary, job.folder, job.name, line)
                self._tell(number, Answer(value, text=line.getvalue()))

    def _tell(self, number: int, answer: Answer) -> None:
        self.seen.add(number)
        try:
            self._sweep.take(number, answer)
        except BrokenPipeError:
            self.reader_left = True
            silence_output()
            _thread.interrupt_main()
