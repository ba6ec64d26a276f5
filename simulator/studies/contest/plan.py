"""Who meets whom, where, at which loads: the plan of a tournament and of a recommendation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.engine.inputs import choose_sequences, load_cost, load_recording
from simulator.engine.settings import Settings, read_settings
from simulator.policies.loading import make_policy, policy_name
from simulator.studies.contest.entrants import UNCHANGED, Entrant, Rival, read_rivals
from simulator.studies.options import read_listed, read_option
from simulator.studies.runs import Asked, Run, check_closed_loop, fair_requests
from simulator.studies.settings import Recommend, Tournament
from traces.common.errors import InputError
from traces.common.settings import read
from traces.recordings.recording import Recording

MIXTURE = "mixture"  # all domains that are served
OPEN_S, FEWEST, MOST = 30.0, 500, 20_000  # of an open loop: seconds, requests
OWN = "default"  # the settings of a policy's own file, whoever published them
SEEDS = 5  # that a recommendation reports, unless they are listed


@dataclass(frozen=True, eq=False)
class Deployment:
    """One latency profile and one recording."""

    profile: str
    trace: str
    latency: Mapping[str, Any]
    recorded: Mapping[str, Any]  # the trace's node, without its split

    @property
    def recording(self) -> Recording:
        return load_recording(self.recorded)


@dataclass(frozen=True, slots=True)
class ContestCell:
    """One load on some texts of a deployment, with the seeds that are played there."""

    deployment: Deployment
    split: str
    domain: str  # or MIXTURE
    concurrency: int | None
    seeds: tuple[int, ...]

    @property
    def trace(self) -> dict[str, Any]:
        """The trace's node."""
        own = {**self.deployment.recorded, "split": self.split}
        return own if self.domain == MIXTURE else own | {"domains": [self.domain]}

    @property
    def sequences(self) -> np.ndarray:
        """(P,) of the recording."""
        return choose_sequences(self.trace, self.deployment.recording)


@dataclass(frozen=True, slots=True)
class ContestPlan:
    """What is played, where, at which loads, and how it is judged."""

    config: Mapping[str, Any]  # of every run, but for what `run` sets
    settings: Settings  # of the configuration
    asked: Tournament | Recommend
    rivals: tuple[Rival, ...]
    deployments: tuple[Deployment, ...]
    concurrency: tuple[int | None, ...]
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    num_prompts: int | None
    limits: Mapping[str, float] | None  # objectives of a request in ms; None: throughput counts
    candidate: Entrant | None = None  # of a tournament

    @property
    def measure(self) -> str:
        """What policies are ranked by."""
        return "output_throughput" if self.limits is None else "request_goodput"

    @property
    def unit(self) -> str:
        return "tokens/s" if self.limits is None else "good requests/s"

    @property
    def num_gpus(self) -> int:
        """Of all replicas."""
        return load_cost(self.config["latency"]).num_gpus * self.settings.server.replicas

    def domains(self, deployment: Deployment) -> tuple[str, ...]:
        """Where results are reported: its domains, the mixture of them last."""
        each = isinstance(self.asked, Tournament) and self.asked.domains == "each"
        return (*(deployment.recording.domains if each else ()), MIXTURE)

    def entrants(self, rival: Rival, deployment: Deployment) -> list[Entrant]:
        """A policy with every setting that is tried; no candidate meets itself."""
        label = OWN if self.candidate is None else UNCHANGED
        found = rival.entrants(deployment.recording.depths, label)
        own = None if self.candidate is None else self.candidate.key
        return [one for one in found if one.key != own]

    def tuning_cell(self, at: Deployment, concurrency: int | None) -> ContestCell:
        return ContestCell(at, self.asked.split_tune, MIXTURE, concurrency, self.tuning_seeds)

    def report_cell(self, at: Deployment, concurrency: int | None, domain: str) -> ContestCell:
        return ContestCell(at, self.asked.split_report, domain, concurrency, self.seeds)

    def run(self, cell: ContestCell, entrant: Entrant, seed: int) -> Run:
        """One run; `task=run` with its configuration gives the same numbers."""
        config = {
            **self.config,
            "task": "run",
            "policy": dict(entrant.node),
            "trace": cell.trace,
            "latency": cell.deployment.latency,
            "max_concurrency": cell.concurrency,
            "num_prompts": self.requests(cell),
            "seed": seed,
        }
        return Run(config, Asked(self.limits or {}))

    def requests(self, cell: ContestCell) -> int | None:
        """Requests of a run; None: what `task=run` takes of a workload's file.

        A closed loop has every prompt once behind its clients' first ones; an open one lasts
        `OPEN_S` seconds, with `FEWEST` requests at least and `MOST` at most.
        """
        settings = self.settings
        if self.num_prompts is not None or not settings.workload.recorded:
            return self.num_prompts
        if not settings.closed_loop:
            return min(max(FEWEST, math.ceil(settings.request_rate * OPEN_S)), MOST)
        return fair_requests(cell.concurrency, len(cell.sequences))


def read_plan(cfg: Mapping[str, Any]) -> ContestPlan:
    """The plan of a tournament; reads every file that the configuration names.

    Raises:
        InputError: the first bad key, value or file.
    """
    settings, asked = read_settings(cfg), read(Tournament, cfg.get("tournament") or {})
    check_closed_loop(settings, "tournament")
    rivals = tuple(read_rivals(asked.rivals))
    profiles = read_listed("latency", asked.profiles, cfg["latency"], "tournament.profiles")
    traces = read_listed("trace", asked.traces, cfg["trace"], "tournament.traces")
    deployments = tuple(
        Deployment(profile, trace, latency, {"recording": node.get("recording"), "domains": None})
        for profile, latency in profiles.items()
        for trace, node in traces.items()
    )
    node = cfg["policy"]
    if asked.candidate is not None:
        node = read_option("policy", asked.candidate, "tournament.candidate")
    make_policy(node)
    seeds = asked.seeds or (settings.seed,)
    plan = ContestPlan(
        config={**cfg, "goodput": None},
        settings=settings,
        asked=asked,
        rivals=rivals,
        deployments=deployments,
        concurrency=asked.concurrency,
        seeds=seeds,
        tuning_seeds=seeds,
        num_prompts=asked.num_prompts,
        limits=None,
        candidate=Entrant(policy_name(node), UNCHANGED, node),
    )
    _check(plan, "tournament.num_prompts")
    return plan


def read_recommend_plan(cfg: Mapping[str, Any]) -> ContestPlan:
    """The plan of a recommendation; reads every file that the configuration names.

    Raises:
        InputError: the first bad key, value or file.
    """
    settings, asked = read_settings(cfg), read(Recommend, cfg.get("recommend") or {})
    profile, first = load_cost(cfg["latency"]).profile.name, settings.seed
    plan = ContestPlan(
        config=cfg,
        settings=settings,
        asked=asked,
        rivals=tuple(read_rivals(asked.policies, "recommend.policies")),
        deployments=(Deployment(profile, "", cfg["latency"], cfg["trace"]),),
        concurrency=asked.concurrency or (settings.max_concurrency,),
        seeds=asked.seeds or tuple(range(first, first + SEEDS)),
        tuning_seeds=asked.tuning_seeds or (first,),
        num_prompts=settings.num_prompts,
        limits=settings.goodput,
    )
    _check(plan, "num_prompts")
    return plan


def _check(plan: ContestPlan, requests: str) -> None:
    """Raise InputError for what could only fail later: files, splits, settings, short runs."""
    for deployment in plan.deployments:
        load_cost(deployment.latency)
        for rival in plan.rivals:
            rival.entrants(deployment.recording.depths)
        for concurrency in plan.concurrency:
            read_settings({**plan.config, "max_concurrency": concurrency, "num_prompts": None})
        plan.tuning_cell(deployment, None).sequences  # noqa: B018  raises
        for domain in plan.domains(deployment):
            plan.report_cell(deployment, None, domain).sequences  # noqa: B018  raises
    given = plan.num_prompts
    if given is not None and plan.settings.closed_loop and given <= 2 * max(plan.concurrency):
        named = " with task=recommend" if plan.candidate is None else ""
        raise InputError(
            f"{requests} is {given}; accepted{named}: null, or more than twice the "
            f"largest concurrency ({max(plan.concurrency)}), the batch is never full otherwise"
        )
