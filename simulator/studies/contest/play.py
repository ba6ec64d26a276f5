"""One simulation of a tournament: what determines it, and what is kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from simulator.cost import Source, StepCost
from simulator.engine.fingerprint import identity, named_files, sources
from simulator.engine.inputs import choose_sequences, load_cost, load_recording
from simulator.engine.run import Job, prepare, simulate, tables_of
from simulator.engine.settings import Settings
from simulator.policies.loading import make_policy, reason_of
from simulator.results.facts import Facts
from simulator.results.latency import throughput, window_tokens
from simulator.results.window import FULL_BATCH, Window, find_window
from simulator.studies.fair_load import rejection
from traces.common.errors import InputError
from traces.common.intervals import throughput_sums
from traces.recordings.recording import Recording


@dataclass(frozen=True, slots=True)
class Match:
    """A policy on a recording's texts at the price of a profile, as plain data."""

    policy: Mapping[str, Any]
    trace: Mapping[str, Any]
    latency: Mapping[str, Any]
    load: Settings

    @property
    def key(self) -> str:
        """sha256 of what determines the result; names of files and options do not."""
        recording = load_recording(self.trace)
        parts = {
            "policy": {key: value for key, value in self.policy.items() if key != "name"},
            "source": sources(__name__, self.policy),
            "files": named_files(self.policy),
            "recording": recording.content_hash,
            "texts": [self.trace["split"], self.trace["domains"]],
            "profile": _profile(load_cost(self.latency)),
            "latency": {k: v for k, v in self.latency.items() if k not in ("name", "profile")},
            "load": self.load.model_dump() | {"request_rate": None},  # always inf, which JSON lacks
        }
        return identity(parts)


@cache
def _profile(cost: StepCost) -> str:
    return cost.profile.content_hash


@dataclass(frozen=True, slots=True)
class Result:
    """What is kept of a simulation: window's numbers, and sums by prompt (`intervals`)."""

    tokens_s: float
    nodes_per_request: float | None
    modelled: float  # share of step time beyond the measured table
    clamped: float  # share of step time at contexts outside the measured ones
    requests: int  # that end in the window
    prompts: list[int]  # (P,) sequences of the recording
    tokens: list[float]  # (P,) times clients
    seconds: list[float]  # (P,)


def play(match: Match) -> Result | str:
    """Simulate; the reason in one line where the policy refuses the recording or the profile."""
    recording = load_recording(match.trace)
    cost = load_cost(match.latency)
    server = match.load.server.with_memory(cost.profile.header)
    job = Job(
        config={"policy": match.policy},
        settings=match.load.with_(server=server),
        recording=recording,
        sequences=choose_sequences(match.trace, recording),
        cost=cost,
        policy=make_policy(match.policy),
        tables=shared_tables(recording),
    )
    try:
        facts = simulate(prepare(job))
    except InputError as error:
        return reason_of(error, match.policy)
    return _kept(facts, find_window(facts), job)


@lru_cache(maxsize=1)
def shared_tables(recording: Recording):
    """One for all matches of a recording in turn, so that fitted-on tables are found again."""
    return tables_of(recording)


def _kept(facts: Facts, window: Window, job: Job) -> Result:
    if window.kind != FULL_BATCH:
        raise rejection(job, facts) or InputError(
            f"tournament.num_prompts: {job.settings.requests} requests never fill a batch of "
            f"{job.settings.max_concurrency}; accepted: more, or texts of more than one token"
        )
    numbers, prompts = throughput(facts, window), np.unique(facts.requests["sequence"])
    columns = facts.requests | {"window_tokens": window_tokens(facts, window)}
    sums = throughput_sums(columns, (window.start_s, window.end_s), facts.concurrency, prompts)
    inside, step_s = window.steps(facts), facts.steps["step_s"]
    return Result(
        tokens_s=numbers["output_throughput"],
        nodes_per_request=_nodes(facts, inside),
        modelled=_share(facts, step_s * inside, Source.MODELLED),
        clamped=_share(facts, step_s * inside, Source.CLAMPED),
        requests=numbers["window"]["requests"],
        prompts=prompts.tolist(),
        tokens=sums.amount.tolist(),
        seconds=sums.per.tolist(),
    )


def _nodes(facts: Facts, inside: np.ndarray) -> float | None:
    rounds = facts.steps["batch"][inside].sum()
    return float(facts.steps["draft_nodes"][inside].sum() / rounds) if rounds else None


def _share(facts: Facts, step_s: np.ndarray, flag: Source) -> float:
    total = step_s.sum()
    held = (facts.steps["source"] & int(flag)) != 0
    return float(step_s[held].sum() / total) if total else 0.0
