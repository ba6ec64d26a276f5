"""`task=run`: one run, alone or as a job of a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.engine import run as engine
from simulator.progress import Progress
from simulator.results.files import SUMMARY, is_complete
from simulator.results.printing import print_run, print_skipped

_prepared: dict[str, engine.Job] = {}  # by configuration; a policy serves one run


def load(cfg: Mapping[str, Any]) -> None:
    """Check the run, its policy fitted, and keep it for `run`.

    Raises:
        InputError: see `simulator.engine.run`.
    """
    _prepared[json.dumps(cfg, sort_keys=True)] = engine.prepare(engine.load(cfg))


def run(cfg: Mapping[str, Any], folder: Path, sweep: str | None = None) -> bool:
    """Run it into `folder`, unless the very same run is there; whether it is.

    sweep: the job's name inside a sweep, whose line it prints.

    Raises:
        InputError: see `simulator.engine.run`.
    """
    if (folder / SUMMARY).exists() and is_complete(folder, engine.identity_of(cfg)):
        print_skipped(folder)
        return True
    job = _prepared.pop(json.dumps(cfg, sort_keys=True), None) or engine.prepare(engine.load(cfg))
    with Progress(job.settings.requests, "requests") as progress:
        summary = engine.run_job(job, folder, progress.update)
    print_run(summary, folder, sweep)
    return False
