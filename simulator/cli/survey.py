"""From the words of a command line to the jobs they stand for."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from simulator.cli.errors import explained
from simulator.cli.help import version_line
from simulator.cli.overrides import (
    CONF,
    check_folders,
    check_sweep,
    is_of_option,
    quoted,
    refuse_nothing,
    refuse_values,
)
from simulator.engine.settings import SCALARS
from traces.common.errors import InputError

Composer = Callable[[Sequence[str]], Any]
MOST_CHECKED = 256  # combinations of a sweep that are all checked before it starts


@dataclass(frozen=True, slots=True)
class Command:
    """A parsed command line."""

    overrides: tuple[str, ...]
    runs: bool  # False for --help, --cfg and the like
    multirun: bool
    config_dir: str | None
    helps: bool = False


def parse(words: Sequence[str]) -> Command:
    """Parse with Hydra's own parser.

    Raises:
        InputError: an unknown flag, or a folder of configurations that is not there.
    """
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.error = _refuse
    for action in parser._actions:
        if "--version" in action.option_strings:
            action.version = version_line()
    args: argparse.Namespace = parser.parse_args(list(words))
    if args.multirun and (args.cfg or args.info):
        flag = "--cfg" if args.cfg else "--info"
        raise InputError(f"{flag} with -m; accepted: one of them")
    shows = args.help or args.hydra_help or args.cfg or args.info or args.shell_completion
    other = args.config_path or args.config_name or args.experimental_rerun
    if args.config_dir is not None and not os.path.isdir(args.config_dir):
        raise InputError(f"--config-dir is {args.config_dir!r}; accepted: an existing folder")
    runs = not (shows or other)
    return Command(tuple(args.overrides), runs, args.multirun, args.config_dir, args.help)


def _refuse(message: str) -> NoReturn:
    raise InputError(" ".join(message.split()))


@dataclass(frozen=True, slots=True)
class Survey:
    """What a command will do, as far as that can be known before it starts."""

    jobs: list[dict[str, Any]]  # configurations, as plain data; see `composed_jobs`
    total: int | None  # jobs, where the sweeper's configuration says how many
    launcher: str  # its class
    searches: bool  # whether the sweeper needs a number of every job
    swept: frozenset[str] = frozenset()  # keys and groups that differ by job


def survey(command: Command) -> Survey:
    """The jobs of the command; writes nothing. Raises as `composed_jobs` does."""
    from hydra.types import RunMode

    with _composer() as composed:
        try:
            words, hydra, groups = _expanded(command, composed)
            jobs = [_composed_job(job, composed) for job in _bounded(words)]
        except ValueError as error:  # a group set to a number or to null
            raise InputError(str(error)) from error
    trials = hydra.sweeper.get("n_trials")  # of Optuna
    if trials is not None and trials < 1:
        raise InputError(f"hydra.sweeper.n_trials is {trials}; accepted: 1 or more")
    swept = command.multirun or hydra.mode == RunMode.MULTIRUN
    total, searches = trials or len(words), swept and trials is not None
    return Survey(jobs, total, hydra.launcher._target_, searches, groups)


def composed_jobs(command: Command) -> list[dict[str, Any]]:
    """The configurations of the command's jobs, as plain data; writes nothing.

    A sweep of more than `MOST_CHECKED` jobs gives each of its values once instead; one by another
    sweeper than Hydra's basic one gives what its jobs share.

    Raises:
        InputError, and Hydra's and OmegaConf's own errors: see `simulator.cli.errors`.
    """
    return survey(command).jobs


def _composed_job(job: list[str], composed: Composer) -> dict[str, Any]:
    """One job's configuration; jobs that differ in plain settings share a slow composition."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    late = [word for word in job if word.partition("=")[0] in SCALARS]
    whole = composed([word for word in job if word not in late])
    own = OmegaConf.masked_copy(whole, [key for key in whole if key != "hydra"])
    for override in OverridesParser.create().parse_overrides(late):
        own[override.key_or_group] = override.value()
    return OmegaConf.to_container(own, resolve=True)


def job_overrides(command: Command) -> list[list[str]]:
    """The overrides of every job of the command. Raises as `composed_jobs` does."""
    with _composer() as composed:
        return _expanded(command, composed)[0]


@contextmanager
def _composer() -> Iterator[Composer]:
    """A function from overrides to a configuration, Hydra's own node in it; each composed once."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import ConfigCompositionException

    known: dict[tuple[str, ...], Any] = {}

    def composed(overrides: Sequence[str]) -> Any:
        key = tuple(overrides)
        if key not in known:
            try:
                known[key] = compose("config", list(key), return_hydra_config=True)
            except ConfigCompositionException as error:
                line = explained(error, overrides, composed)
                if line is None:
                    raise
                raise InputError(line) from error
        return known[key]

    if not (CONF / "config.yaml").is_file():
        raise InputError(f"{CONF}: no config.yaml; accepted: the folder conf beside simulator")
    with initialize_config_dir(str(CONF), job_name="simulator", version_base="1.3"):
        yield composed


def _searchpath(command: Command) -> list[str]:
    if command.config_dir is None:
        return []
    return [f"hydra.searchpath=[{quoted('file://' + os.path.abspath(command.config_dir))}]"]


def _expanded(command: Command, composed: Composer) -> tuple[list[list[str]], Any, frozenset[str]]:
    """Overrides of every job, the folder of further configurations among them.

    Also Hydra's node, and the keys and groups that differ by job.
    """
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.types import RunMode

    loader = GlobalHydra.instance().config_loader()  # what glob(...) looks through
    parser, extra = OverridesParser.create(loader), _searchpath(command)
    given = parser.parse_overrides(list(command.overrides))
    fixed = [o for o in given if not o.is_sweep_override()]
    several = command.multirun or len(fixed) < len(given) or _in(given, "experiment")
    # A key of a group that is swept, here or by an experiment, need not be one of its default.
    shared = [o.input_line for o in fixed if not (several and is_of_option(o))]
    hydra = composed([*extra, *shared]).hydra
    check_folders(hydra)
    if not command.multirun and hydra.mode != RunMode.MULTIRUN:
        refuse_values(given)
        return [[*extra, *command.overrides]], hydra, frozenset()
    swept = [f"{key}={value}" for key, value in (hydra.sweeper.params or {}).items()]
    both = parser.parse_overrides([*swept, *command.overrides])
    refuse_nothing(both, loader)
    groups = frozenset(o.key_or_group for o in both if o.is_sweep_override())
    if not hydra.sweeper._target_.endswith(".BasicSweeper"):
        fixed = [o for o in fixed if o.key_or_group.partition(".")[0] not in groups]
        return [[*extra, *(o.input_line for o in fixed)]], hydra, groups
    own = [o for o in both if not o.get_key_element().startswith("hydra.")]
    jobs = [[*extra, *job] for job in BasicSweeper.split_arguments(own, None)[0]]
    check_sweep(hydra, len(jobs))
    return jobs, hydra, groups


def _in(overrides: Sequence[Any], key: str) -> bool:
    return any(o.key_or_group == key for o in overrides)


def _bounded(jobs: list[list[str]]) -> list[list[str]]:
    if len(jobs) <= MOST_CHECKED:
        return jobs
    seen: set[str] = set()
    kept = []
    for job in jobs:
        if not seen.issuperset(job):
            seen.update(job)
            kept.append(job)
    return kept
