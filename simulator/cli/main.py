"""The command line: `python -m simulator`, composed by Hydra.

Everything is checked before a job starts: a refused command leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from simulator.cli.errors import REFUSED, one_line
from simulator.cli.help import help_text
from simulator.cli.overrides import normalised
from simulator.cli.remarks import remarks
from simulator.cli.survey import Command, Plan, opened, parse, planned
from simulator.cli.sweep.job import SweepJob, perform
from simulator.cli.sweep.objective import ACCEPTED, Objective
from simulator.studies.options import CONF
from traces.common.errors import InputError
from traces.common.files import INTERRUPTED

# Settings that no policy is fitted to.
_LOAD = ("seed", "num_prompts", "request_rate", "burstiness", "goodput")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 2 for bad input and 130 after Ctrl-C."""
    try:
        words = normalised(sys.argv[1:] if argv is None else argv)
        command = parse(words)
        return _run(command) if command.runs else _show(words, command)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:  # of --version, and of Hydra's own flags
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        line = one_line(error)
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return REFUSED


# ---------------- Flags that show something.


def _show(words: list[str], command: Command) -> int:
    """--help, and what is Hydra's own: --cfg and the like."""
    import hydra
    from hydra.errors import HydraException

    if command.helps:
        print(help_text(command.config_dir), end="")
        return 0
    # Hydra reads sys.argv, and raises its errors to us instead of printing them if told so.
    before, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [sys.argv[0], *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        decorated = hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
        decorated(lambda _: None)()
    except HydraException:
        with opened(command) as composer:
            planned(composer)  # which says better what is wrong with the words
        raise
    finally:
        sys.argv = before
        os.environ.pop("HYDRA_FULL_ERROR")
        if full is not None:
            os.environ["HYDRA_FULL_ERROR"] = full
    return 0


# ---------------- Flags and words that run something.


def _run(command: Command) -> int:
    with opened(command) as composer:
        plan = planned(composer)
        if plan.swept:
            folder = os.path.abspath(plan.hydra.sweep.dir)
            jobs = [composer.job(words, number, folder) for number, words in plan.sample()]
        else:
            jobs = [composer.job(plan.jobs[0], None)]
        objective = _check(plan, jobs)
        for line in (*remarks([job.config for job in jobs]), *_doubts(jobs)):
            print(f"warning: {line}", file=sys.stderr)
        if not plan.swept:
            perform(jobs[0])
            return 0
        from simulator.cli.sweep.launch import run_sweep
        from simulator.cli.sweep.progress import Sweep

        with Sweep(plan.total, Path(plan.hydra.sweep.dir), objective) as sweep:
            run_sweep(plan, composer, sweep)
        return sweep.status


def _check(plan: Plan, jobs: Sequence[SweepJob]) -> Objective | None:
    """Refuse what the jobs would refuse before they start; the objective of all of them.

    Policies are fitted in it, unless their runs are finished, once for jobs that differ in their
    load alone.
    """
    from simulator.engine.settings import read_settings
    from simulator.studies import check

    fitted: set[str] = set()
    for job in jobs:
        key = json.dumps({k: v for k, v in job.config.items() if k not in _LOAD})
        if plan.swept and key in fitted:
            read_settings(job.config)
        elif not job.is_finished():
            check(job.config)
            fitted.add(key)
    objective = jobs[0].objective
    if objective is None and plan.arguments is not None:
        raise InputError(f"objective is null; accepted with a sweeper that searches: {ACCEPTED}")
    return objective


def _doubts(jobs: Sequence[SweepJob]) -> list[str]:
    """What is odd about the jobs' latency profiles, a line each."""
    from simulator.engine.inputs import load_cost
    from traces.profiles.devices import suspicious

    nodes = [job.config["latency"] for job in jobs if job.config.get("latency")]
    lines = []
    for node in {json.dumps(node, sort_keys=True): node for node in nodes}.values():
        with suppress(InputError):  # of a task that reads none; others have refused it by now
            lines.append(suspicious(load_cost(node).profile))
    return [line for line in lines if line is not None]
