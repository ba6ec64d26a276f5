"""The command line: `python -m simulator`, composed by Hydra.

Everything is checked before Hydra starts, because Hydra makes its run folders before it calls us:
a refused command leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import hydra
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper

from simulator.cli.errors import REFUSED, JobFailed, one_line
from simulator.cli.help import help_text
from simulator.cli.overrides import CONF, held_back, normalised
from simulator.cli.remarks import remarks
from simulator.cli.survey import Command, Survey, parse, survey
from simulator.cli.sweep.compose import KEY, OURS
from simulator.cli.sweep.job import folder_name, is_elsewhere, job
from simulator.cli.sweep.objective import Objective, names, split_objective
from traces.common.errors import InputError
from traces.common.files import INTERRUPTED

# Settings that no policy is fitted to.
_LOAD = ("seed", "num_prompts", "request_rate", "burstiness", "goodput")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 2 for bad input and 130 after Ctrl-C."""
    try:
        words = normalised(sys.argv[1:] if argv is None else argv)
        command = parse(words)
        if not command.runs:
            return _show(words, command)
        return _run(words, command)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:  # from Hydra (--version), or from a refused job
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except JobFailed as failure:  # it was printed
        return failure.status
    except Exception as error:
        line = one_line(error)
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return REFUSED


def _show(words: list[str], command: Command) -> int:
    """--help, and what is Hydra's own: --cfg and the like."""
    if command.helps:
        print(help_text(command.config_dir), end="")
        return 0
    try:
        _call_hydra(words)
    except HydraException:
        survey(command)  # which says better what is wrong with the words
        raise
    return 0


def _run(words: list[str], command: Command) -> int:
    """Check everything, then let Hydra run it."""
    from simulator.cli.sweep.launch import launched_by
    from simulator.cli.sweep.progress import Sweep

    found = survey(command)
    objective = _check(found)
    for line in (*remarks(found.jobs), *_doubts(found.jobs)):
        print(f"warning: {line}", file=sys.stderr)
    with Sweep(found.total, objective) as sweep, launched_by(sweep), _composed_once():
        _call_hydra(held_back(_with_our_files(words, command), found.swept))
    return sweep.status


def _doubts(jobs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is odd about the jobs' latency profiles, a line each."""
    from simulator.engine.inputs import load_cost
    from traces.profiles.devices import suspicious

    nodes = {json.dumps(job["latency"], sort_keys=True): job["latency"]
             for job in jobs if job.get("latency")}  # fmt: skip
    for node in nodes.values():
        with suppress(InputError):  # of a task that reads none; others have refused it by now
            line = suspicious(load_cost(node).profile)
            if line is not None:
                yield line


def _check(found: Survey) -> Objective | None:
    """Refuse what the jobs would refuse before they start; the objective of all of them.

    Policies are fitted in it. Where the jobs run in other processes, which have to fit them again,
    those of jobs that differ in their load are fitted once.
    """
    from simulator.engine.settings import read_settings
    from simulator.studies import check

    once, fitted, objective = is_elsewhere(found.launcher), set(), None
    for job_config in found.jobs:
        config, objective = split_objective(job_config)
        key = json.dumps({k: v for k, v in config.items() if k not in _LOAD})
        if once and key in fitted:
            read_settings(config)
        else:
            check(config)
        fitted.add(key)
    if objective is None and found.searches:
        raise InputError(f"objective is null; accepted with a sweeper that searches: {names()}")
    return objective


def _with_our_files(words: list[str], command: Command) -> list[str]:
    """`words` with the one that leaves ``.hydra`` to us, unless they say something about it."""
    if any(word.lstrip("+~").startswith(KEY) for word in words):
        return words
    at = words.index(command.overrides[0]) if command.overrides else 0  # overrides stay together
    return [*words[:at], OURS, *words[at:]]


def _call_hydra(words: list[str]) -> None:
    """Hydra reads sys.argv, and raises its errors to us instead of printing them if told so."""
    before, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [sys.argv[0], *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        _hydra()
    finally:
        sys.argv = before
        os.environ.pop("HYDRA_FULL_ERROR")
        if full is not None:
            os.environ["HYDRA_FULL_ERROR"] = full


@contextmanager
def _composed_once() -> Iterator[None]:
    """Keep Hydra from composing every job of a sweep only to see that it can: `_check` has.

    Composing is most of the time of a sweep of short runs, and Hydra does it again for each run.
    """
    # Of the base class: Hydra loads its plugins' modules anew, and their classes with them.
    original = Sweeper.validate_batch_is_legal
    Sweeper.validate_batch_is_legal = lambda self, batch: None
    try:
        yield
    finally:
        Sweeper.validate_batch_is_legal = original


_hydra = hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(job)


__all__ = ["folder_name", "main"]
