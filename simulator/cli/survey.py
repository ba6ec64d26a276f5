"""From the words of a command line to the jobs they stand for: Hydra composes each of them once."""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from omegaconf import DictConfig, OmegaConf

from simulator.cli.errors import explained
from simulator.cli.help import version_line
from simulator.cli.overrides import typed
from simulator.cli.sweep.job import SweepJob, folder_name, job_name
from simulator.cli.sweep.objective import KEYS, split_objective
from simulator.engine.settings import SCALARS
from simulator.studies.contest.command_line import written
from simulator.studies.options import CONF
from traces.common.errors import InputError

MOST_CHECKED = 256  # combinations of a sweep that are all checked before it starts
MOST_JOBS = 100_000  # of a sweep
MOST_KNOWN = 256  # compositions kept

# ---------------- Flags.


@dataclass(frozen=True, slots=True)
class Command:
    """A parsed command line."""

    overrides: tuple[str, ...]
    runs: bool  # False for --help, --cfg and the like
    multirun: bool
    config_dir: str | None
    helps: bool = False
    config_path: str | None = None
    config_name: str = "config"


def parse(words: Sequence[str]) -> Command:
    """Parse the flags, which are Hydra's.

    Raises:
        InputError: an unknown flag, or a folder of configurations that is not there.
    """
    args = _parser().parse_args(list(words))
    shown = args.cfg or args.info
    if args.multirun and shown:
        flag = "--cfg" if args.cfg else "--info"
        raise InputError(f"{flag} with -m; accepted: one of them")
    if args.config_dir is not None and not os.path.isdir(args.config_dir):
        raise InputError(f"--config-dir is {args.config_dir!r}; accepted: an existing folder")
    runs = not (shown or args.help or args.hydra_help or args.shell_completion)
    place = (args.config_path, args.config_name)
    return Command(tuple(args.overrides), runs, args.multirun, args.config_dir, args.help, *place)


def _parser() -> argparse.ArgumentParser:
    def refuse(message: str) -> NoReturn:
        raise InputError(" ".join(message.split()))

    parser = argparse.ArgumentParser(add_help=False)
    parser.error = refuse
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--version", action="version", version=version_line())
    for flag, short in (
        ("--help", "-h"),
        ("--hydra-help", "--hydra-help"),
        ("--resolve", "--resolve"),
        ("--run", "-r"),
        ("--multirun", "-m"),
        ("--shell-completion", "-sc"),
    ):
        parser.add_argument(flag, short, action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--package", "-p")
    parser.add_argument("--config-path", "-cp")
    parser.add_argument("--config-name", "-cn", default="config")
    parser.add_argument("--config-dir", "-cd")
    infos = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]
    parser.add_argument("--info", "-i", const="all", nargs="?", choices=infos)
    return parser


# ---------------- Compositions.


@dataclass(frozen=True, slots=True)
class _Base:
    """What jobs share that differ in values alone: a composition, and it as plain data.

    config: without Hydra's node; hydra: that node without its texts of help. Interpolations are as
    they are; points: whether there are any in config.
    """

    whole: DictConfig
    config: dict[str, Any]
    hydra: dict[str, Any]
    points: bool

    @classmethod
    def of(cls, whole: DictConfig) -> _Base:
        own = OmegaConf.masked_copy(whole, [key for key in whole if key != "hydra"])
        config = OmegaConf.to_container(own)
        hydra = OmegaConf.to_container(whole.hydra, enum_to_str=True)
        hydra = {key: value for key, value in hydra.items() if key not in ("help", "hydra_help")}
        return cls(whole, config, hydra, "${" in str(config))


class Composer:
    """Hydra while it is initialised, see `opened`; what it composed is kept.

    Jobs that differ in plain values share one composition: a seed or a load changes no group and
    no file, and composing takes longer than many a run.
    """

    def __init__(self, command: Command) -> None:
        from hydra.core.global_hydra import GlobalHydra
        from hydra.core.override_parser.overrides_parser import OverridesParser

        self.command = command
        self.loader = GlobalHydra.instance().config_loader()  # what glob(...) looks through
        self._parser = OverridesParser.create(self.loader)
        self._parsed: dict[str, Any] = {}  # by word
        self._known: dict[tuple[str, ...], _Base] = {}
        self._extra: list[str] = []
        if command.config_dir is not None:
            folder = "file://" + os.path.abspath(command.config_dir)
            self._extra = [f"hydra.searchpath={written([folder])}"]

    def parsed(self, words: Sequence[str]) -> list[Any]:
        """Hydra's overrides of the words."""
        new = [word for word in dict.fromkeys(words) if word not in self._parsed]
        self._parsed |= dict(zip(new, self._parser.parse_overrides(new)))
        return [self._parsed[word] for word in words]

    @property
    def hydras(self) -> list[str]:
        """Hydra's own among the command's words."""
        given = self.parsed(self.command.overrides)
        return [override.input_line for override in given if override.is_hydra_override()]

    def _base(self, words: Sequence[str]) -> _Base:
        """What Hydra composes of the words.

        Raises:
            InputError, and Hydra's and OmegaConf's own errors: see `simulator.cli.errors`.
        """
        from hydra import compose
        from hydra.errors import ConfigCompositionException

        key = tuple(words)
        if key not in self._known:
            given, name = [*self._extra, *words], self.command.config_name
            try:
                found = compose(name, given, return_hydra_config=True)
            except ConfigCompositionException as error:
                line = explained(error, words, lambda fewer: self._base(fewer).whole)
                if line is None:
                    raise
                raise InputError(line) from error
            except ValueError as error:  # a group set to a number or to null
                raise InputError(str(error)) from error
            while len(self._known) >= MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[key] = _Base.of(found)
        return self._known[key]

    def shared(self, words: Sequence[str]) -> DictConfig:
        """What jobs with these words share, Hydra's node in it: values are set later.

        Raises as `settings` does.
        """
        return self._base(self._split(words)[0]).whole

    def _split(self, words: Sequence[str]) -> tuple[list[str], list[Any]]:
        """The words that Hydra has to compose, and the overrides that set values in the result."""
        parsed = self.parsed(words)
        late = [override for override in parsed if _is_value(override)]
        keys = {override.key_or_group for override in late}
        early = [override for override in parsed if not _is_value(override)]
        if any(override.key_or_group in keys for override in early):  # in their order, then
            return list(words), []
        return [override.input_line for override in early], late

    def settings(self, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The configuration of the words as plain data, and Hydra's node.

        Raises:
            InputError, and Hydra's and OmegaConf's own errors: see `simulator.cli.errors`.
        """
        early, late = self._split(words)
        base = self._base(early)
        config = copy.deepcopy(base.config)
        if not all(_set(config, o.key_or_group.split("."), o.value()) for o in late):
            base = self._base(words)  # which says what is wrong, or knows better
            config = copy.deepcopy(base.config)
        if base.points or any("${" in override.input_line for override in late):
            own = OmegaConf.masked_copy(_rooted(config, base.hydra), list(config))
            config = OmegaConf.to_container(own, resolve=True)
        return config, base.hydra

    def job(self, words: Sequence[str], number: int | None, folder: str = "") -> SweepJob:
        """A job in its folder.

        Args:
            number: among the jobs of a sweep; None: it is no sweep.
            folder: of the sweep.
        """
        config, hydra = self.settings(words)
        own = [word for word in words if not self._parsed[word].is_hydra_override()]
        named = hydra["job"] | {"override_dirname": _dirname(own, hydra["job"]["config"])}
        if number is not None:
            named |= {"num": number, "id": str(number)}
        hydra = hydra | {
            "mode": "RUN" if number is None else "MULTIRUN",
            "job": named,
            "overrides": hydra["overrides"] | {"task": own},
            "sweep": hydra["sweep"] | {"dir": folder},
        }
        group, name = ("run", "dir") if number is None else ("sweep", "subdir")
        place = str(hydra[group][name])
        if place == "${folder_name:${hydra.job.override_dirname}}":  # most of the time
            place = folder_name(named["override_dirname"])
        elif "${" in place:
            place = str(OmegaConf.select(_rooted(config, hydra), f"hydra.{group}.{name}"))
        at = os.path.abspath(os.path.join(folder, place))
        hydra["runtime"] = hydra["runtime"] | {"output_dir": at}
        rest, objective = split_objective(config)
        return SweepJob(tuple(own), job_name(own), at, rest, objective, hydra, os.getcwd())


@contextmanager
def opened(command: Command) -> Iterator[Composer]:
    """Hydra for the command, with a composer of its jobs.

    Inside another job of Hydra's, that one is back after the block.
    """
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    folder = os.path.abspath(command.config_path or CONF)
    if command.config_path is None and not (CONF / "config.yaml").is_file():
        raise InputError(f"{CONF}: no config.yaml; accepted: the folder conf beside simulator")
    OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)  # of config.yaml
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(folder, job_name="simulator", version_base="1.3"):
            yield Composer(command)
    finally:
        GlobalHydra.instance().hydra = outer


def _is_value(override: Any) -> bool:
    """Whether it sets a key to a value that chooses nothing else, and may be set at last."""
    from hydra.core.override_parser.types import OverrideType

    key = override.key_or_group
    plain = key in SCALARS or ("." in key and not override.is_hydra_override())
    return (
        plain
        and override.type == OverrideType.CHANGE
        and override.package is None
        and not override.is_sweep_override()
        and not isinstance(override.value(), Mapping)  # it would be merged
    )


def _set(config: dict[str, Any], path: Sequence[str], value: Any) -> bool:
    """Set a key that is there and holds no mapping; whether it is one."""
    *parents, last = path
    for name in parents:
        config = config.get(name)
        if not isinstance(config, dict):
            return False
    if last not in config or isinstance(config[last], dict):
        return False
    config[last] = value
    return True


def _dirname(words: Sequence[str], settings: Mapping[str, Any]) -> str:
    """Hydra's name of a job's folder, objectives left out."""
    settings = settings["override_dirname"]
    excluded = (*settings["exclude_keys"], *KEYS)
    kept = sorted(word for word in words if word.lstrip("+~").partition("=")[0] not in excluded)
    return settings["item_sep"].join(kept).replace("=", settings["kv_sep"])


def _rooted(config: Mapping[str, Any], hydra: Mapping[str, Any]) -> DictConfig:
    """Both in one, where their interpolations find each other; ``${hydra:KEY}`` too."""
    from hydra.core.hydra_config import HydraConfig

    root = OmegaConf.create({**config, "hydra": dict(hydra)})
    HydraConfig.instance().cfg = root
    return root


# ---------------- Plans.


@dataclass(frozen=True, slots=True)
class Plan:
    """What a command will do."""

    jobs: list[list[str]]  # overrides of every job; of a search what its jobs share
    shared: DictConfig  # the configuration without what differs by job
    swept: bool
    arguments: tuple[str, ...] | None = None  # of a sweeper that searches, and calls for jobs

    @property
    def hydra(self) -> DictConfig:
        """Hydra's node."""
        return self.shared.hydra

    @property
    def total(self) -> int:
        """How many jobs there will be."""
        return len(self.jobs) if self.arguments is None else self.hydra.sweeper.n_trials

    @property
    def launcher(self) -> str:
        """Its class."""
        return self.hydra.launcher._target_

    def sample(self) -> list[tuple[int, list[str]]]:
        """Jobs to check, by their number: all; of very many each option once, and some values."""
        numbered = list(enumerate(self.jobs))
        if len(numbered) <= MOST_CHECKED:
            return numbered
        kept: dict[int, list[str]] = {}
        seen: set[str] = set()
        for scalars, most in ((False, len(numbered)), (True, MOST_CHECKED)):
            for number, job in numbered:
                new = {word for word in job if scalars or word.partition("=")[0] not in SCALARS}
                if not new <= seen and len(kept) < most:
                    kept[number] = job
                    seen.update(job)
        return sorted(kept.items())


def planned(composer: Composer) -> Plan:
    """The plan of the composer's command; writes nothing.

    Raises:
        InputError, and Hydra's and OmegaConf's own errors: see `simulator.cli.errors`.
    """
    from hydra.types import RunMode

    command = composer.command
    given = composer.parsed(command.overrides)
    fixed = [o for o in given if not o.is_sweep_override()]
    several = command.multirun or len(fixed) < len(given)
    several = several or any(o.key_or_group == "experiment" for o in given)
    # A key of a group that is swept, here or by an experiment, need not be one of its default.
    kept = [o for o in fixed if not several or "." not in o.key_or_group or o.is_hydra_override()]
    shared = composer.shared([o.input_line for o in kept])
    hydra = shared.hydra
    for name in ("run", "sweep"):  # without a name results would lie in the working folder
        folder = OmegaConf.to_container(hydra[name], resolve=False)["dir"]
        if not str(folder).strip():
            raise InputError(f"hydra.{name}.dir is {folder!r}; accepted: a folder, . for this one")
    if command.multirun or hydra.mode == RunMode.MULTIRUN:
        return _sweep(composer, shared, fixed)
    for override in given:
        if override.is_sweep_override():
            key, value = typed(override)
            raise InputError(f"{key} is {value}; several values need -m")
    return Plan([list(command.overrides)], shared, swept=False)


def _sweep(composer: Composer, shared: DictConfig, fixed: Sequence[Any]) -> Plan:
    """The plan of a sweep. fixed: overrides of the command that have one value."""
    sweeper, words = shared.hydra.sweeper, composer.command.overrides
    swept = [f"{key}={value}" for key, value in (sweeper.get("params") or {}).items()]
    both = composer.parsed([*swept, *words])
    _refuse_many(both, composer.loader)
    own = [o for o in both if not o.is_hydra_override()]
    if sweeper._target_.endswith(".BasicSweeper"):
        jobs = [[*composer.hydras, *job] for job in _expanded(own)]
        _check_sweep(shared.hydra, len(jobs))
        return Plan(jobs, shared, swept=True)
    trials = sweeper.get("n_trials")
    if trials is not None and trials < 1:
        raise InputError(f"hydra.sweeper.n_trials is {trials}; accepted: 1 or more")
    groups = {o.key_or_group for o in both if o.is_sweep_override()}
    fixed = [o for o in fixed if o.key_or_group.partition(".")[0] not in groups]
    given = [o.input_line for o in composer.parsed(words) if not o.is_hydra_override()]
    return Plan([[o.input_line for o in fixed]], shared, swept=True, arguments=tuple(given))


def _expanded(overrides: Sequence[Any]) -> list[list[str]]:
    """Every combination of the values, the first key's changing last."""
    values: dict[str, list[str]] = {}
    for override in overrides:
        key = override.get_key_element()
        if override.is_delete():
            values[key] = [override.input_line]
        elif override.is_sweep_override() and not override.is_discrete_sweep():
            name, value = typed(override)
            raise InputError(f"{name} is {value}; accepted: values, choice(...), range(...)")
        elif override.is_sweep_override():
            values[key] = [f"{key}={text}" for text in override.sweep_string_iterator()]
        else:
            values[key] = [f"{key}={override.get_value_element_as_str()}"]
    return [list(job) for job in itertools.product(*values.values())]


def _refuse_many(overrides: Sequence[Any], loader: Any) -> None:
    """Raise InputError for values that no run has, or more of them than a sweep may have runs."""
    from hydra.core.override_parser.types import Glob, RangeSweep

    jobs = 1
    for override in overrides:
        if not override.is_discrete_sweep():
            continue
        key, shown = typed(override)
        value = override.value()
        if isinstance(value, RangeSweep):  # which may be too long to go through
            steps = (value.stop - value.start) / value.step if value.step else 0
            count = max(0, math.ceil(min(steps, 1e300)))
        else:
            count = sum(1 for _ in override.sweep_iterator())
        jobs *= count
        if jobs > MOST_JOBS:
            raise InputError(
                f"{key} is {shown}, which makes {jobs} runs; accepted: up to {MOST_JOBS} in a sweep"
            )
        if not count:
            accepted = "a range with a value in it"
            if isinstance(value, Glob):
                options = loader.get_group_options(override.key_or_group)
                accepted = f"a pattern of {', '.join(options)}" if options else "a group's key"
            raise InputError(f"{key} is {shown}, which no run has; accepted: {accepted}")


def _check_sweep(hydra: Any, jobs: int) -> None:
    """Raise InputError for a sweep whose `jobs` would lie in one folder, or run in no batches."""
    folder = OmegaConf.to_container(hydra.sweep, resolve=False)["subdir"]
    if jobs > 1 and "${" not in str(folder):
        raise InputError(
            f"hydra.sweep.subdir is {folder!r}, one folder for all runs; accepted: a name that "
            "differs by run, such as '${hydra.job.num}'"
        )
    most = hydra.sweeper.max_batch_size
    if most is not None and most < 1:
        raise InputError(f"hydra.sweeper.max_batch_size is {most}; accepted: 1 or more, or null")
