"""The settings of a tournament, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.engine.inputs import choose_sequences, load_cost, load_recording
from simulator.engine.settings import Settings, read_settings
from simulator.policies.loading import make_policy, policy_name
from simulator.studies.contest.entrants import Entrant, Rival, read_rivals
from simulator.studies.fair_load import MOST_PROMPTS, base_of, fair_load
from simulator.studies.options import read_like, read_option
from simulator.studies.settings import SECTIONS
from traces.common.errors import InputError
from traces.common.settings import read
from traces.recordings.recording import Recording
from traces.recordings.schema import SPLITS


class Section:
    """The values of ``NAME.*``; a method for each kind raises InputError for any other."""

    def __init__(self, cfg: Mapping[str, Any], name: str) -> None:
        """Raises InputError where a key that the section must have is missing."""
        self.name, self._node = name, cfg.get(name) or {}
        read(SECTIONS[name], self._node)

    def __getitem__(self, key: str) -> Any:
        return self._node[key]

    def one_of(self, key: str, accepted: tuple[str, ...]) -> str:
        if self[key] not in accepted:
            self.refuse(key, ", ".join(accepted))
        return self[key]

    def whole(self, key: str, least: int, optional: bool = False) -> int | None:
        value = self[key]
        if value is None and optional:
            return None
        if not _is_whole(value, least):
            self.refuse(key, f"a whole number of at least {least}")
        return value

    def whole_list(self, key: str, least: int) -> tuple[int, ...]:
        """Ascending, each once; at least one."""
        values = self[key]
        good = isinstance(values, list) and values and all(_is_whole(v, least) for v in values)
        if not good:
            self.refuse(key, f"a list of whole numbers of at least {least}")
        return tuple(int(value) for value in np.unique(values))

    def seeds(self, key: str, first: int, count: int) -> tuple[int, ...]:
        """A list of seeds; where it is null, `count` of them from `first` on."""
        if self[key] is None:
            return tuple(range(first, first + count))
        return self.whole_list(key, 0)

    def number(
        self,
        key: str,
        above: float,
        below: float,
        *,
        optional: bool = False,
        closed: bool = False,
        words: str | None = None,
    ) -> float | None:
        """A number between both; `closed`: the upper end too. `words` say what is accepted."""
        value = self[key]
        if value is None and optional:
            return None
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (above < value < below or (closed and value == below)):
            end = f"to {below:g}" if closed else f"and below {below:g}"
            self.refuse(key, words or f"a number above {above:g} {end}")
        return float(value)

    def refuse(self, key: str, accepted: str) -> None:
        """Raise InputError about the key's value."""
        raise InputError(f"{self.name}.{key} is {self[key]!r}; accepted: {accepted}")


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


MIXTURE = "mixture"  # all domains of the recording


@dataclass(frozen=True, slots=True)
class Deployment:
    """One latency profile and one recording."""

    profile: str
    trace: str
    latency: Mapping[str, Any]
    recorded: Mapping[str, Any]  # the trace's node, without split and domains

    @property
    def recording(self) -> Recording:
        return load_recording(self.recorded)

    def trace_node(self, split: str, domain: str) -> dict[str, Any]:
        domains = None if domain == MIXTURE else [domain]
        return {**self.recorded, "split": split, "domains": domains}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played, where, at which loads."""

    candidate: Entrant
    rivals: tuple[Rival, ...]
    deployments: tuple[Deployment, ...]
    each_domain: bool
    concurrency: tuple[int, ...]
    seeds: tuple[int, ...]
    num_prompts: int | None
    base: Settings  # server and prompts of every run
    split_tune: str
    split_report: str
    resamples: int
    workers: int

    def domains(self, deployment: Deployment) -> tuple[str, ...]:
        """Report cells of a deployment: its domains, the mixture of them last."""
        return (*(deployment.recording.domains if self.each_domain else ()), MIXTURE)

    def settings(self, concurrency: int, seed: int, prompts: int) -> Settings:
        """Load of one simulation that has `prompts` texts to serve."""
        return fair_load(self.base, concurrency, prompts, seed, self.num_prompts)


def read_plan(cfg: Mapping[str, Any]) -> Plan:
    """The plan of a composed configuration; reads every file that it names.

    Raises:
        InputError: the first bad key, value or file.
    """
    base = base_of(read_settings(cfg), "tournament")
    section = Section(cfg, "tournament")
    plan = Plan(
        candidate=_candidate(cfg, section["candidate"]),
        rivals=tuple(read_rivals(section["rivals"])),
        deployments=_deployments(cfg, section),
        each_domain=section.one_of("domains", ("each", MIXTURE)) == "each",
        concurrency=section.whole_list("concurrency", 1),
        seeds=section.seeds("seeds", base.seed, 1),
        num_prompts=section.whole("num_prompts", 1, optional=True),
        base=base,
        split_tune=section.one_of("split_tune", SPLITS),
        split_report=section.one_of("split_report", SPLITS),
        resamples=section.whole("resamples", 100),
        workers=section.whole("workers", 1),
    )
    _check(plan)
    return plan


def _candidate(cfg: Mapping[str, Any], name: Any) -> Entrant:
    where = "tournament.candidate"
    node = cfg["policy"] if name is None else read_option("policy", name, where)
    make_policy(node)
    return Entrant(policy_name(node), "published", node)


def _deployments(cfg: Mapping[str, Any], node: Section) -> tuple[Deployment, ...]:
    profiles = _options(cfg, "latency", "profiles", node["profiles"])
    traces = _options(cfg, "trace", "traces", node["traces"])
    return tuple(
        Deployment(profile, trace, latency, {"recording": recorded.get("recording")})
        for profile, latency in profiles.items()
        for trace, recorded in traces.items()
    )


def _options(cfg: Mapping[str, Any], group: str, key: str, value: Any) -> dict[str, Mapping]:
    where = f"tournament.{key}"
    if value is None:
        own = cfg[group]
        return {str(own.get("name") or own.get("profile") or own.get("recording")): own}
    if not isinstance(value, list) or not value:
        raise InputError(f"{where} is {value!r}; accepted: null, or a list of names or files")
    return {str(name): read_like(group, name, cfg[group], where) for name in value}


def _check(plan: Plan) -> None:
    """Raise InputError for what could only fail later: files, splits, settings, short runs."""
    for deployment in plan.deployments:
        load_cost(deployment.latency)
        depths = deployment.recording.depths
        for rival in plan.rivals:
            rival.entrants(depths)
        choose_sequences(deployment.trace_node(plan.split_tune, MIXTURE), deployment.recording)
        for domain in plan.domains(deployment):
            choose_sequences(deployment.trace_node(plan.split_report, domain), deployment.recording)
    largest = max(plan.concurrency)
    plan.settings(largest, 0, 1)
    if plan.num_prompts is not None and plan.num_prompts <= 2 * largest:
        raise InputError(
            f"tournament.num_prompts is {plan.num_prompts}; accepted: null, or more than twice the "
            f"largest concurrency ({largest}), the batch is never full otherwise"
        )


# ---------------- The settings of a recommendation, checked once.


OPEN_S, FEWEST, MOST = 30.0, 500, 20_000
UNCHANGED = "published"  # as a tournament says it
OWN = "default"  # the settings of a policy's own file, whoever published them
SEEDS = 5  # of the runs that are reported, unless they are listed


@dataclass(frozen=True, slots=True)
class RecommendPlan:
    """Who may be recommended, for which loads, and how it is judged."""

    config: Mapping[str, Any]  # of every run, but for policy, split, load, seed, number of requests
    settings: Settings  # of the configuration
    rivals: tuple[Rival, ...]
    concurrency: tuple[int | None, ...]  # max_concurrency of each load
    attained: float
    tuning_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    split_tune: str
    split_report: str
    resamples: int
    workers: int

    @property
    def limits(self) -> Mapping[str, float] | None:
        """Objectives of a request in ms; None: throughput alone counts."""
        return self.settings.goodput

    @property
    def measure(self) -> str:
        """What policies are ranked by."""
        return "output_throughput" if self.limits is None else "request_goodput"

    @property
    def unit(self) -> str:
        return "tokens/s" if self.limits is None else "good requests/s"

    @property
    def recording(self) -> Recording:
        return load_recording(self.config["trace"])

    @property
    def num_gpus(self) -> int:
        """Of all replicas."""
        return load_cost(self.config["latency"]).num_gpus * self.settings.server.replicas

    def entrants(self, rival: Rival) -> list[Entrant]:
        """A policy with every setting that is tried."""
        found = rival.entrants(self.recording.depths)
        return [replace(one, setting=OWN) if one.setting == UNCHANGED else one for one in found]

    def sequences(self, split: str) -> np.ndarray:
        """(P,) of a split, in the configured domains."""
        return choose_sequences(self._trace(split), self.recording)

    def config_of(
        self, entrant: Entrant, split: str, concurrency: int | None, seed: int
    ) -> dict[str, Any]:
        """The configuration of one run; `task=run` with it gives the same numbers."""
        return {
            **self.config,
            "task": "run",
            "policy": dict(entrant.node),
            "trace": self._trace(split),
            "max_concurrency": concurrency,
            "num_prompts": self.num_prompts(split, concurrency),
            "seed": seed,
        }

    def num_prompts(self, split: str, concurrency: int | None) -> int | None:
        """Requests of a run; None: what `task=run` takes of a workload's file.

        A closed loop has every prompt once behind its clients' first ones, as in a tournament; an
        open one lasts `OPEN_S` seconds, with `FEWEST` requests at least and `MOST` at most.
        """
        settings = self.settings
        if settings.num_prompts is not None or not settings.workload.recorded:
            return settings.num_prompts
        if not settings.closed_loop:
            return min(max(FEWEST, math.ceil(settings.request_rate * OPEN_S)), MOST)
        served = 2 * concurrency + min(len(self.sequences(split)), MOST_PROMPTS)
        return max(64, 6 * concurrency, served)

    def _trace(self, split: str) -> dict[str, Any]:
        return {**self.config["trace"], "split": split}


def read_recommend_plan(cfg: Mapping[str, Any]) -> RecommendPlan:
    """The plan of a composed configuration; reads every file that it names.

    Raises:
        InputError: the first bad key, value or file.
    """
    settings, section = read_settings(cfg), Section(cfg, "recommend")
    plan = RecommendPlan(
        config=cfg,
        settings=settings,
        rivals=tuple(read_rivals(section["policies"], "recommend.policies")),
        concurrency=_loads(section, settings),
        attained=section.number("attained", 0, 1, closed=True),
        tuning_seeds=section.seeds("tuning_seeds", settings.seed, 1),
        seeds=section.seeds("seeds", settings.seed, SEEDS),
        split_tune=section.one_of("split_tune", SPLITS),
        split_report=section.one_of("split_report", SPLITS),
        resamples=section.whole("resamples", 100),
        workers=section.whole("workers", 1),
    )
    _check_of_options(plan)
    return plan


def _loads(section: Section, settings: Settings) -> tuple[int | None, ...]:
    if section["concurrency"] is None:
        return (settings.max_concurrency,)
    return section.whole_list("concurrency", 1)


def _check_of_options(plan: RecommendPlan) -> None:
    """Raise InputError for what could only fail later: files, splits, settings, short runs."""
    load_cost(plan.config["latency"])
    for rival in plan.rivals:
        plan.entrants(rival)
    for split in (plan.split_tune, plan.split_report):
        plan.sequences(split)
    given, settings = plan.settings.num_prompts, plan.settings
    if given is not None and settings.closed_loop and given <= 2 * max(plan.concurrency):
        raise InputError(
            f"num_prompts is {given}; accepted with task=recommend: null, or more than twice the "
            f"largest concurrency ({max(plan.concurrency)}), the batch is never full otherwise"
        )
