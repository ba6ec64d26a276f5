"""SGLang's adaptive speculation: the chain length follows the accepted length, by batch tiers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simulator.orders.specs import ChainOrder
from simulator.params import choice, draft_length, probability, whole
from simulator.policy import Lab, Load, Outcome, Policy, Step
from simulator.step_tiers import read_tiers

TIERS = (
    {"min_batch": 1, "lengths": (1, 3, 5, 7), "down": -0.25},
    {"min_batch": 8, "lengths": (0, 1, 3), "down": 0.0},
    {"min_batch": 32, "lengths": (0, 1), "down": 0.0},
    {"min_batch": 64, "lengths": (0,), "down": 0.0},
)


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
        whole("warmup", warmup, 0), whole("interval", interval), probability("weight", weight)
        self.tiers = read_tiers(tiers)
        if initial is not None:
            lengths = {length for tier in self.tiers for length in tier.lengths}
            choice("initial", initial, tuple(sorted(lengths)))
        self._settings = (weight, warmup, interval, initial)

    def prepare(self, lab: Lab) -> None:
        for i, tier in enumerate(self.tiers):
            draft_length(f"tiers[{i}].lengths", tier.lengths[-1], lab)
        self._states = [tier.start(*self._settings) for tier in self.tiers]

    def _state(self, batch: int):
        return self._states[bisect_right([t.min_batch for t in self.tiers], batch) - 1]

    def plan(self, load: Load) -> ChainOrder | None:
        return self.order if self._state(load.batch).length else None

    def allocate(self, step: Step) -> np.ndarray:
        return np.minimum(step.draft.size, self._state(step.batch).length)  # (batch,)

    def observe(self, outcome: Outcome) -> None:
        self._state(len(outcome.request)).update(float(outcome.accepted.mean()))
