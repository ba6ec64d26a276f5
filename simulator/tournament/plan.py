"""The settings of a tournament, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.fair_load import base_of, fair_load
from simulator.inputs import choose_sequences, load_cost, load_recording
from simulator.load_policy import make_policy, policy_name
from simulator.settings import Settings, read_settings
from simulator.tournament.options import read_like, read_option
from simulator.tournament.rivals import Entrant, Rival, read_rivals
from simulator.tournament.section import Section
from traces.errors import InputError
from traces.recording import Recording
from traces.schema import SPLITS

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
