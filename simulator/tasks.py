"""What the command line can do: run, rtable, published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator import rtable, run
from simulator.progress import Progress
from simulator.results import discard
from simulator.settings import check_keys
from simulator.terminal import print_run, print_skipped

_prepared: dict[str, run.Job] = {}  # by configuration; a policy serves one run


def check(config: Mapping[str, Any]) -> None:
    """Raise InputError for what `perform` would refuse before it starts; writes no results.

    Policies are fitted here, so that one that cannot be is refused before a sweep begins.
    """
    check_keys(config)
    task = config.get("task", "run")
    if task == "run":
        _prepared[_key(config)] = run.prepare(run.load(config))
    elif task == "rtable":
        rtable.load(config)


def perform(config: Mapping[str, Any], folder: Path, sweep: str | None) -> None:
    """Perform the task in `folder`; `sweep` is the job's name inside a sweep, else None.

    Raises:
        InputError: bad input.
    """
    task = config.get("task", "run")
    check_keys(config)
    if task == "run":
        _run(config, folder, sweep)
    elif task == "rtable":
        rtable.run(config, folder)
    else:
        from simulator import published

        published.run(config)
        discard(folder)  # it writes nothing


def _run(config: Mapping[str, Any], folder: Path, sweep: str | None) -> None:
    job = _prepared.pop(_key(config), None) or run.prepare(run.load(config))
    with Progress(job.settings.requests, "requests") as progress:
        summary = run.run_job(job, folder, progress.update)
    if summary is None:
        print_skipped(folder)
    else:
        print_run(summary, folder, sweep)


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)
