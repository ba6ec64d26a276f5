"""Tiers of draft lengths by batch size, each with a moving average of what is accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulator.params import entries as listed
from traces.errors import InputError

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
