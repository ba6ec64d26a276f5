"""The settings of a recommendation, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.fair_load import MOST_PROMPTS
from simulator.inputs import choose_sequences, load_cost, load_recording
from simulator.settings import Settings, read_settings
from simulator.tournament.rivals import Entrant, Rival, read_rivals
from simulator.tournament.section import Section
from traces.errors import InputError
from traces.recording import Recording
from traces.schema import SPLITS

OPEN_S, FEWEST, MOST = 30.0, 500, 20_000
UNCHANGED = "published"  # as a tournament says it
OWN = "default"  # the settings of a policy's own file, whoever published them
SEEDS = 5  # of the runs that are reported, unless they are listed


@dataclass(frozen=True, slots=True)
class Plan:
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


def read_plan(cfg: Mapping[str, Any]) -> Plan:
    """The plan of a composed configuration; reads every file that it names.

    Raises:
        InputError: the first bad key, value or file.
    """
    settings, section = read_settings(cfg), Section(cfg, "recommend")
    plan = Plan(
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
    _check(plan)
    return plan


def _loads(section: Section, settings: Settings) -> tuple[int | None, ...]:
    if section["concurrency"] is None:
        return (settings.max_concurrency,)
    return section.whole_list("concurrency", 1)


def _check(plan: Plan) -> None:
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
