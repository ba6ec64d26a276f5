"""From the words of a command line to those Hydra understands, and to the jobs they stand for."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import simulator
from simulator import latency_file
from simulator.settings import SCALARS
from traces.errors import InputError

# The checkout's conf/, and in a wheel the package's neighbour: the same place from here.
CONF = Path(simulator.__file__).resolve().parents[1] / "conf"
GROUPS = ("policy", "trace", "latency", "server", "experiment")
FILES = {"trace": ("recording", (".safetensors", ".json")), "latency": ("profile", (".csv",))}
KEYS = {"tournament": "tournament.rivals"}  # folders of conf/ whose files a key names
BESIDE = ("objective", "direction")  # keys that the configuration need not have
_UNQUOTED = re.compile(r"[A-Za-z0-9_./-]+")
Composer = Callable[[Sequence[str]], Any]
MOST_CHECKED = 256  # combinations of a sweep that are all checked before it starts


def normalised(words: Sequence[str]) -> list[str]:
    """`words` as Hydra wants them.

    ``+policy=cast`` becomes ``policy=cast``, as the group is in the defaults list, and a file in
    place of a group's option (``trace=my.safetensors``, ``latency=my.csv``) the key it belongs to,
    or all keys that a ``latency=my.yaml`` holds; as does the name of a tournament's rivals
    (``tournament=published``).

    Raises:
        InputError: files and options mixed in one sweep.
    """
    result = []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key.lstrip("+") in GROUPS:
            result += _group(key.lstrip("+"), value)
        elif equals and key.lstrip("+") in KEYS:
            result.append(f"{KEYS[key.lstrip('+')]}={value}")
        elif equals and key.lstrip("+") in BESIDE:
            result.append(f"++{key.lstrip('+')}={value}")
        else:
            result.append(word)
    return result


def _group(key: str, value: str) -> list[str]:
    if key == "latency" and latency_file.is_file(value):
        return latency_file.overrides_of(value)
    field, endings = FILES.get(key, ("", ()))
    values = value.split(",")
    files = [bool(endings) and item.endswith(endings) for item in values]
    if not any(files):
        return [f"{key}={value}"]
    if not all(files):
        raise InputError(f"{key}={value}: accepted: options of the group, or files, not both")
    quoted = ",".join(map(_quoted, values))
    # The group's default keeps its other keys; its name would be another profile's.
    return [f"{key}.{field}={quoted}"] + ([f"{key}.name=null"] if key == "latency" else [])


def _quoted(text: str) -> str:
    if _UNQUOTED.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True, slots=True)
class Command:
    """A parsed command line."""

    overrides: tuple[str, ...]
    runs: bool  # False for --help, --cfg and the like
    multirun: bool
    config_dir: str | None


def parse(words: Sequence[str]) -> Command:
    """Parse with Hydra's own parser.

    Raises:
        InputError: an unknown flag, or a folder of configurations that is not there.
    """
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.error = _refuse
    args: argparse.Namespace = parser.parse_args(list(words))
    shows = args.help or args.hydra_help or args.cfg or args.info or args.shell_completion
    other = args.config_path or args.config_name or args.experimental_rerun
    if args.config_dir is not None and not os.path.isdir(args.config_dir):
        raise InputError(f"--config-dir is {args.config_dir!r}; accepted: an existing folder")
    return Command(tuple(args.overrides), not (shows or other), args.multirun, args.config_dir)


def _refuse(message: str) -> NoReturn:
    raise InputError(" ".join(message.split()))


@dataclass(frozen=True, slots=True)
class Survey:
    """What a command will do, as far as that can be known before it starts."""

    jobs: list[dict[str, Any]]  # configurations, as plain data; see `composed_jobs`
    total: int | None  # jobs, where the sweeper's configuration says how many
    launcher: str  # its class
    searches: bool  # whether the sweeper needs a number of every job


def survey(command: Command) -> Survey:
    """The jobs of the command; writes nothing. Raises as `composed_jobs` does."""
    from hydra.types import RunMode

    with _composer() as composed:
        try:
            words, hydra = _expanded(command, composed)
            jobs = [_composed_job(job, composed) for job in _bounded(words)]
        except ValueError as error:  # a group set to a number or to null
            raise InputError(str(error)) from error
    trials = hydra.sweeper.get("n_trials")  # of Optuna
    swept = command.multirun or hydra.mode == RunMode.MULTIRUN
    return Survey(jobs, trials or len(words), hydra.launcher._target_, swept and trials is not None)


def composed_jobs(command: Command) -> list[dict[str, Any]]:
    """The configurations of the command's jobs, as plain data; writes nothing.

    A sweep of more than `MOST_CHECKED` jobs gives each of its values once instead; one by another
    sweeper than Hydra's basic one gives what its jobs share.

    Raises:
        InputError, and Hydra's and OmegaConf's own errors: see `simulator.one_line`.
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

    known: dict[tuple[str, ...], Any] = {}

    def composed(overrides: Sequence[str]) -> Any:
        key = tuple(overrides)
        if key not in known:
            known[key] = compose("config", list(key), return_hydra_config=True)
        return known[key]

    if not (CONF / "config.yaml").is_file():
        raise InputError(f"{CONF}: no config.yaml; accepted: the folder conf beside simulator")
    with initialize_config_dir(str(CONF), job_name="simulator", version_base="1.3"):
        yield composed


def _searchpath(command: Command) -> list[str]:
    if command.config_dir is None:
        return []
    return [f"hydra.searchpath=[{_quoted('file://' + os.path.abspath(command.config_dir))}]"]


def _expanded(command: Command, composed: Composer) -> tuple[list[list[str]], Any]:
    """Overrides of every job, the folder of further configurations among them; Hydra's node."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.types import RunMode

    loader = GlobalHydra.instance().config_loader()  # what glob(...) looks through
    parser, extra = OverridesParser.create(loader), _searchpath(command)
    given = parser.parse_overrides(list(command.overrides))
    fixed = [o.input_line for o in given if not o.is_sweep_override()]
    hydra = composed([*extra, *fixed]).hydra
    if not command.multirun and hydra.mode != RunMode.MULTIRUN:
        return [[*extra, *command.overrides]], hydra
    if not hydra.sweeper._target_.endswith(".BasicSweeper"):
        return [[*extra, *fixed]], hydra
    swept = [f"{key}={value}" for key, value in (hydra.sweeper.params or {}).items()]
    both = parser.parse_overrides([*swept, *command.overrides])
    own = [o for o in both if not o.get_key_element().startswith("hydra.")]
    return [[*extra, *job] for job in BasicSweeper.split_arguments(own, None)[0]], hydra


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
