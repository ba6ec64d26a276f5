"""What the process that started a sweep knows of it: counts, failures, the best run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simulator.cli.errors import JobFailed, one_line
from simulator.cli.sweep.job import job_name, task_overrides
from simulator.cli.sweep.lock import INSIDE, leftovers
from simulator.cli.sweep.objective import Objective, split_objective
from simulator.progress import Progress
from simulator.results.printing import print_skipped, short_path


class Sweep:
    """A sweep under way, with a bar on a terminal.

    Args:
        total: jobs, None where the sweeper has not said how many.
        objective: whose best value is printed at the end.
    """

    def __init__(self, total: int | None = None, objective: Objective | None = None) -> None:
        self.out = sys.stdout  # jobs in this process may redirect it
        self.objective = objective
        self.finished = self.skipped = self.failed = 0
        self.status = 0
        self._total, self._launched = total, 0
        self._best: tuple[float, str] | None = None
        self._bar: Progress | None = None
        self._folder: Path | None = None
        self._begun = time.monotonic()

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.__exit__()
        if kind is None and self._best is not None:
            value, name = self._best
            print(f"best: {name}: {self.objective.name} {value:.6g}", file=self.out, flush=True)
        if self._launched and sys.stderr.isatty():
            took = duration(time.monotonic() - self._begun)
            where = f"; results in {short_path(self._folder)}" if self._folder else ""
            print(f"{self._counts(self.finished)} in {took}{where}", file=sys.stderr)

    def launch(self, jobs: int, folder: str) -> None:
        """`jobs` more are about to run, or to be skipped; their results lie below `folder`."""
        self._launched += jobs
        self._folder = Path(folder)
        if self._bar is None:
            self._bar = Progress(0, "runs")
        self._show()

    def finish(self, name: str, value: float | None, skipped: bool = False) -> None:
        """A run has ended well, or its job found it there; `value` of the objective."""
        self.skipped += skipped
        self.finished += not skipped
        self.consider(name, value)
        self._show()

    def skip(self, name: str, folder: Path, value: float | None) -> None:
        """A run is there already: its job is not started."""
        print_skipped(folder, self.out)
        self.finish(name, value, skipped=True)

    def fail(self, name: str, error: JobFailed) -> None:
        """A job has failed, for which the sweep's exit status is not 0; the others go on."""
        self.failed += 1
        self.status = error.status if self.status == 0 else min(self.status, error.status)
        print(error.shown(name), file=sys.stderr, flush=True)
        self._show()

    def consider(self, name: str, value: float | None) -> None:
        """A run's value of the objective, if there is one."""
        if value is None or self.objective is None:
            return
        if self._best is None or self.objective.is_better(value, self._best[0]):
            self._best = value, name

    def _show(self) -> None:
        """Time left is estimated from the runs that were not skipped."""
        total = max(self._total or 0, self._launched) - self.skipped
        note = ", ".join(
            f"{n} {what}" for n, what in ((self.skipped, "skipped"), (self.failed, "failed")) if n
        )
        self._bar.update(self.finished + self.failed, total=total, note=note)

    def _counts(self, new: int) -> str:
        parts = [f"{new} new", f"{self.skipped} skipped"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        return f"{self._launched} runs: {', '.join(parts)},"


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


@dataclass(frozen=True, slots=True)
class Planned:
    """A job before it runs."""

    overrides: Sequence[str]
    name: str  # as its line on the terminal calls it
    folder: Path | None  # None: only its launcher will know
    config_hash: str | None  # of a run that can be found again

    @property
    def is_finished(self) -> bool:
        """Whether its results are there, and nobody is at work on them or was killed at it."""
        from simulator.results.files import is_complete

        if self.folder is None or self.config_hash is None:
            return False
        if not (self.folder / INSIDE).is_dir() or leftovers(self.folder):
            return False
        return is_complete(self.folder, self.config_hash)


def planned(overrides: Sequence[str], config: DictConfig) -> Planned:
    """The plan of a job from its composed configuration.

    A folder or a setting that depends on the job's number, which the launcher has yet to give,
    leaves the folder open; the job itself then finds what is there.
    """
    name = job_name(task_overrides(config.hydra))
    try:
        with _before_any_job():
            folder = os.path.abspath(config.hydra.sweep.dir)
            folder = Path(folder, str(OmegaConf.select(config, "hydra.sweep.subdir")))
            content = {str(key): _plain(config[key]) for key in config if key != "hydra"}
    except (OmegaConfBaseException, ValueError):
        return Planned(overrides, name, None, None)
    return Planned(overrides, name, folder, _hash(content))


@contextmanager
def _before_any_job() -> Iterator[None]:
    """Within the block ``${hydra:KEY}`` is not that of the job that ran last in this process."""
    running = HydraConfig.instance()
    before, running.cfg = running.cfg, None
    try:
        yield
    finally:
        running.cfg = before


def _plain(node: Any) -> Any:
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def _hash(content: dict[str, Any]) -> str | None:
    """Of a run's configuration and inputs; None for another task, or where it is refused."""
    from simulator.engine.inputs import settled
    from simulator.engine.run import load

    if content.get("task", "run") != "run":
        return None
    try:
        return load(settled(split_objective(content)[0])).config_hash
    except Exception as error:
        if one_line(error) is None:
            raise
        return None  # the job says why
