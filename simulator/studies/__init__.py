"""What the command line can do, by the name of its task.

A task is a module with `run(cfg, folder)`, which performs it in a folder, and `load(cfg)`, which
raises InputError for what can be refused before any work begins, and writes no results; a task
that refuses nothing may lack it. Adding one is its own module, and one line of `TASKS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from simulator.engine.inputs import settled
from simulator.results.files import discard
from simulator.studies.settings import check_keys

TASKS = {
    "run": "simulator.studies.single",
    "rtable": "simulator.studies.rtable",
    "bounds": "simulator.studies.bounds.task",
    "calibrate": "simulator.studies.calibrate",
    "tournament": "simulator.studies.contest.tournament",
    "claims": "simulator.studies.claims.task",
    "capacity": "simulator.studies.capacity.task",
    "recommend": "simulator.studies.contest.recommend",
    "published": "simulator.studies.published",
}


def check(config: Mapping[str, Any]) -> None:
    """Raise InputError for what `perform` would refuse before it starts; writes no results.

    Policies are fitted here, so that one that cannot be is refused before a sweep begins.
    """
    module, own = _read(config)
    if hasattr(module, "load"):
        module.load(own)


def perform(config: Mapping[str, Any], folder: Path, sweep: str | None = None) -> bool:
    """Perform the task in `folder`; whether its results were there already.

    sweep: the job's name inside a sweep.

    Raises:
        InputError: bad input.
    """
    module, own = _read(config)
    if config.get("task", "run") == "run":
        return module.run(own, folder, sweep)
    module.run(own, folder)
    discard(folder)  # of a task that wrote nothing in it
    return False


def _read(config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The task's module, and the configuration, checked and settled."""
    check_keys(config)
    return import_module(TASKS[config.get("task", "run")]), settled(config)
