"""What the command line can do: run, rtable, published, bounds, calibrate, tournament, claims,
capacity, recommend.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.engine import run
from simulator.engine.inputs import settled
from simulator.progress import Progress
from simulator.results.files import discard
from simulator.results.printing import print_run, print_skipped
from simulator.studies import calibrate, rtable
from simulator.studies.bounds import task as bounds
from simulator.studies.configuration import check_keys

_prepared: dict[str, run.Job] = {}  # by configuration; a policy serves one run


def check(config: Mapping[str, Any]) -> None:
    """Raise InputError for what `perform` would refuse before it starts; writes no results.

    Policies are fitted here, so that one that cannot be is refused before a sweep begins.
    """
    check_keys(config)
    config, task = settled(config), config.get("task", "run")
    if task == "run":
        _prepared[_key(config)] = run.prepare(run.load(config))
    elif task == "rtable":
        rtable.load(config)
    elif task == "bounds":
        bounds.load(config)
    elif task == "calibrate":
        calibrate.load(config)
    elif task == "tournament":
        from simulator.studies.contest.plan import read_plan

        read_plan(config)
    elif task == "claims":
        from simulator.studies.claims.claims import read_plan

        read_plan(config)
    elif task == "capacity":
        from simulator.studies.capacity.plan import read_plan

        read_plan(config)
    elif task == "recommend":
        from simulator.studies.contest.plan import read_recommend_plan as read_plan

        read_plan(config)


def perform(config: Mapping[str, Any], folder: Path, sweep: str | None) -> None:
    """Perform the task in `folder`; `sweep` is the job's name inside a sweep, else None.

    Raises:
        InputError: bad input.
    """
    check_keys(config)
    config, task = settled(config), config.get("task", "run")
    if task == "run":
        _run(config, folder, sweep)
    elif task == "rtable":
        rtable.run(config, folder)
    elif task == "bounds":
        bounds.run(config, folder)
    elif task == "calibrate":
        calibrate.run(config)
        discard(folder)  # its file lies beside the recording
    elif task == "tournament":
        from simulator.studies.contest import tournament

        tournament.run(config, folder)
    elif task == "claims":
        from simulator.studies.claims import task as claims

        claims.run(config, folder)
    elif task == "capacity":
        from simulator.studies.capacity import task as capacity

        capacity.run(config, folder)
    elif task == "recommend":
        from simulator.studies.contest import recommend

        recommend.run(config, folder)
    else:
        from simulator.studies.published import decoding as published

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
