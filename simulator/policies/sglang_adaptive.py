"""SGLang's adaptive speculation: the chain length follows the accepted length, by batch tiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.orders.specs import ChainOrder
from simulator.policies.checks import (
    MOST,
    choice,
    draft_length,
    entries,
    probability,
    refused,
    whole,
)
from simulator.policy import Lab, Load, Outcome, Policy, Step
from traces.common.settings import Many, Section, number
from traces.common.settings import whole as whole_number

ENTRY = "{min_batch, lengths: rising from 0 or more, down: a number of tokens}"
TIERS = (
    {"min_batch": 1, "lengths": (1, 3, 5, 7), "down": -0.25},
    {"min_batch": 8, "lengths": (0, 1, 3), "down": 0.0},
    {"min_batch": 32, "lengths": (0, 1), "down": 0.0},
    {"min_batch": 64, "lengths": (0,), "down": 0.0},
)


class Tier(Section):
    """Lengths to choose from at batches from `min_batch` on."""

    min_batch: whole_number(1, MOST)
    lengths: Many[whole_number(0, MOST)]  # rising
    down: number(-MOST, MOST)  # tokens added to the limits for going down


@dataclass(slots=True)
class TierState:
    """Where a tier stands."""

    tier: Tier
    length: int
    average: float  # of accepted draft tokens
    steps: int = 0

    def move(self) -> None:
        """To the length that fits the average."""
        lengths = self.tier.lengths
        at = start = lengths.index(self.length)
        if self.length == 0:
            at = min(at + 1, len(lengths) - 1)
            if lengths[at] and self.average < 0:  # nothing was ever drafted here
                self.average = lengths[at] - 1.0
        else:
            while at and self.average <= (lengths[at - 1] or 1) - 0.5 + self.tier.down:
                at -= 1
            while at >= start and at < len(lengths) - 1 and self.average > lengths[at] - 0.5:
                at += 1
        self.length = lengths[at]


class SGLangAdaptive(Policy):
    """Verify the current length of the live batch's tier; every tier keeps a state of its own.

    A tier averages the accepted draft tokens per request (its steps without draft aside) and, after
    `warmup` steps, looks at the average every `interval` steps. It goes down while the average is
    at most the next smaller length - 0.5 + down (0.5 + down where that length is 0), else up while
    it is above its length - 0.5. From length 0, where nothing is observed, it always goes up by
    one. It starts in the middle of its lengths, the average one token below.

    Args:
        tiers: ``{min_batch, lengths, down}`` by rising batch, from batch 1.
        weight: of the newest step in the moving average.
        initial: starting length of the tiers that have it; null: the middle one.
    """

    order = ChainOrder()

    def __init__(
        self,
        tiers: Sequence[Mapping[str, Any]] = TIERS,
        weight: float = 0.2,
        warmup: int = 10,
        interval: int = 5,
        initial: int | None = None,
    ) -> None:
        self.warmup, self.interval = whole("warmup", warmup, 0), whole("interval", interval)
        self.weight = probability("weight", weight)
        self.tiers = entries("tiers", tiers, Tier, ENTRY)
        for i, tier in enumerate(self.tiers):
            if not tier.lengths or sorted(set(tier.lengths)) != list(tier.lengths):
                raise refused(f"tiers[{i}].lengths", list(tier.lengths), "rising, at least one")
        batches = [tier.min_batch for tier in self.tiers]
        if batches[0] != 1 or sorted(set(batches)) != batches:
            raise refused("tiers", batches, "min_batch that rises, from 1")
        lengths = {length for tier in self.tiers for length in tier.lengths}
        self.initial = choice("initial", initial, (None, *sorted(lengths)))

    def prepare(self, lab: Lab) -> None:
        self._states = []
        for i, tier in enumerate(self.tiers):
            draft_length(f"tiers[{i}].lengths", tier.lengths[-1], lab)
            middle = tier.lengths[len(tier.lengths) // 2]
            length = self.initial if self.initial in tier.lengths else middle
            self._states.append(TierState(tier, length, length - 1.0))

    def _state(self, batch: int) -> TierState:
        return [state for state in self._states if state.tier.min_batch <= batch][-1]

    def plan(self, load: Load) -> ChainOrder | None:
        return self.order if self._state(load.batch).length else None

    def allocate(self, step: Step) -> np.ndarray:
        return np.minimum(step.draft.size, self._state(step.batch).length)  # (batch,)

    def observe(self, outcome: Outcome) -> None:
        state = self._state(len(outcome.request))
        if state.length:
            state.average += self.weight * (float(outcome.accepted.mean()) - state.average)
        state.steps += 1
        since = state.steps - self.warmup
        if since > 0 and since % self.interval == 0:
            state.move()
