"""SGLang's adaptive speculation: the chain length follows the accepted length, by batch tiers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.orders.specs import ChainOrder
from simulator.policies.checks import choice, draft_length, probability, whole
from simulator.policies.checks import entries as listed
from simulator.policy import Lab, Load, Outcome, Policy, Step
from traces.common.errors import InputError

_KEYS = {"min_batch", "lengths", "down"}
_ENTRY = "{min_batch, lengths: rising from 0 or more, down: a number of tokens}"


@dataclass(slots=True)
class TierState:
    """Where a tier stands; `update` takes the mean accepted tokens of one of its steps."""

    tier: Tier
    weight: float
    warmup: int
    interval: int
    length: int
    average: float
    steps: int = field(default=0)

    def update(self, accepted: float) -> None:
        if self.length:
            self.average += self.weight * (accepted - self.average)
        self.steps += 1
        since = self.steps - self.warmup
        if since > 0 and since % self.interval == 0:
            self._move()

    def _move(self) -> None:
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


@dataclass(frozen=True, slots=True)
class Tier:
    """Lengths to choose from at batches from `min_batch` on."""

    min_batch: int
    lengths: tuple[int, ...]  # rising
    down: float  # tokens added to the limits for going down

    def start(self, weight: float, warmup: int, interval: int, initial: int | None) -> TierState:
        middle = self.lengths[len(self.lengths) // 2]
        length = initial if initial in self.lengths else middle
        return TierState(self, weight, warmup, interval, length, length - 1.0)


def read_tiers(entries: Iterable[Mapping[str, Any]]) -> tuple[Tier, ...]:
    """Tiers by rising batch, the first from batch 1.

    Raises:
        InputError: naming the entry, its value and what is accepted.
    """
    tiers = tuple(
        _tier(f"policy.tiers[{i}]", entry)
        for i, entry in enumerate(listed("tiers", entries, _ENTRY))
    )
    batches = [tier.min_batch for tier in tiers]
    if not tiers or batches[0] != 1 or sorted(set(batches)) != batches:
        raise InputError(f"policy.tiers has min_batch {batches}; accepted: rising, from 1")
    return tiers


def _tier(where: str, entry: Any) -> Tier:
    given = dict(entry) if isinstance(entry, Mapping) else {}
    batch, lengths, down = (given.get(key) for key in ("min_batch", "lengths", "down"))
    several = isinstance(lengths, Sequence) and not isinstance(lengths, str)
    listed = list(lengths) if several else [None]
    number = isinstance(down, int | float) and not isinstance(down, bool)
    counts = all(_count(value) for value in [batch, *listed]) and sorted(set(listed)) == listed
    if set(given) != _KEYS or not (number and counts and listed and abs(down) < float("inf")):
        raise InputError(f"{where} is {entry!r}; accepted: {_ENTRY}")
    return Tier(batch, tuple(listed), float(down))


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


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
