"""Which jobs of a sweep are finished: their results lie where they would be written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simulator.one_line import one_line
from simulator.sweep.claim import INSIDE, leftovers
from simulator.sweep.names import job_name, task_overrides
from simulator.sweep.objective import split_objective


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
        from simulator.results import is_complete

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
    from simulator.inputs import settled
    from simulator.run import load

    if content.get("task", "run") != "run":
        return None
    try:
        return load(settled(split_objective(content)[0])).config_hash
    except Exception as error:
        if one_line(error) is None:
            raise
        return None  # the job says why
