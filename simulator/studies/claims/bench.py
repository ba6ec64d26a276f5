"""What one recording is compared with: its texts, orders, resamples, and what was played on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from simulator.engine.inputs import load_cost
from simulator.engine.run import fit, tables_of
from simulator.policies.loading import make_policy
from simulator.policy import Policy
from simulator.studies.claims.claims import Plan, Trace
from simulator.studies.contest.play import Match, Result, play
from traces.common.intervals import Sums, resampled_prompts

FITTED_FOR = 16  # most requests of a step, for policies whose order alone is wanted


class Bench:
    """One recording of the plan."""

    def __init__(self, plan: Plan, trace: Trace) -> None:
        self.plan, self.trace, self.name = plan, trace, trace.name
        self.recording, self.sequences = trace.recording, trace.sequences
        self.table = tables_of(self.recording)
        self._fitted: dict[str, Policy] = {}
        self._played: dict[str, Result | str] = {}

    @cached_property
    def weights(self) -> np.ndarray:
        """(resamples, P), the same for every comparison."""
        return resampled_prompts(len(self.sequences), self.plan.resamples, seed=0)

    def fitted(self, node: Mapping[str, Any], profile: str) -> Policy:
        """A policy that has seen the fitting splits; not to be played."""
        key = json.dumps([node, profile], sort_keys=True)
        if key not in self._fitted:
            policy, cost = make_policy(node), load_cost(self.plan.profile(profile))
            fit(policy, self.recording, cost, FITTED_FOR, self.table)
            self._fitted[key] = policy
        return self._fitted[key]

    def play(self, node: Mapping[str, Any], profile: str, concurrency: int) -> Result | str:
        """A closed loop on the report split, once; why the policy refuses, where it does."""
        key = json.dumps([node, profile, concurrency], sort_keys=True)
        if key not in self._played:
            load = self.plan.load(concurrency, len(self.sequences))
            latency = self.plan.profile(profile)
            self._played[key] = play(Match(node, self.trace.node, latency, load))
        return self._played[key]

    def sums(self, result: Result) -> Sums:
        """Tokens over seconds of every sequence."""
        rows = np.searchsorted(self.sequences, result.prompts)
        tokens, seconds = np.zeros(len(self.sequences)), np.zeros(len(self.sequences))
        tokens[rows], seconds[rows] = result.tokens, result.seconds
        return Sums(tokens, seconds)
