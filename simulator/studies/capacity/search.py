"""Bracket, bisect, look further: which loads are tried, given what the ones before came to."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

DOUBLING = 2.0  # factor of the bracket, unless it begins at another seed's answer
FURTHER = (1.1, 1.3, 1.6)  # times the first that is not met: larger loads tried at the end
DIGITS = 6  # significant ones of a rate

Search = Generator[float, bool, "Found"]  # yields a load, is sent whether it is met


@dataclass(frozen=True, slots=True)
class Scale:
    """The loads that may be tried."""

    least: float
    most: float
    tolerance: float  # of a bracket, relative to its lower end
    whole: bool

    def times(self, load: float, factor: float) -> float:
        """`factor` times as much, within the ends; a whole number moves by one at least."""
        if not self.whole:
            moved = float(f"{load * factor:.{DIGITS}g}")
        elif factor > 1:
            moved = max(math.floor(load * factor), load + 1)
        else:
            moved = min(math.ceil(load * factor), load - 1)
        return min(max(moved, self.least), self.most)

    def resolved(self, low: float, high: float) -> bool:
        return high - low <= self.tolerance * low or (self.whole and high - low <= 1)

    def middle(self, low: float, high: float) -> float:
        if self.whole:
            return (low + high) // 2
        return float(f"{math.sqrt(low * high):.{DIGITS}g}")


@dataclass(frozen=True, slots=True)
class Found:
    """The answer for one seed."""

    low: float | None  # the largest load below `high` that is met; None: none was
    high: float | None  # the next one tried, which is not met; None: the most is met
    beyond: tuple[float, ...]  # loads above `high` that are met all the same

    @property
    def at_least(self) -> bool:
        """Whether nothing larger was tried: the answer is a bound."""
        return self.low is not None and self.high is None


def search(scale: Scale, start: float, near: bool = False) -> Search:
    """Look for the largest load that is met, from `start` on; near: the answer is about there.

    The bracket's factor doubles at every try where it begins small, so that a bad guess costs
    little.
    """
    tried: dict[float, bool] = {}
    factor = 1 + 2 * scale.tolerance if near else DOUBLING
    low, high = yield from _bracket(scale, start, factor, tried)
    while low is not None and high is not None and not scale.resolved(low, high):
        middle = scale.middle(low, high)
        if not low < middle < high:  # no finer digits
            break
        if (yield from _try(middle, tried)):
            low = middle
        else:
            high = middle
    if low is not None and high is not None:
        for further in FURTHER:
            load = scale.times(high, further)
            if load > high:
                yield from _try(load, tried)
    above = high if high is not None else math.inf
    beyond = tuple(sorted(load for load, met in tried.items() if met and load > above))
    return Found(low, high, beyond)


def _bracket(scale: Scale, start: float, factor: float, tried: dict[float, bool]):
    """A load that is met and a larger one that is not; None where the end of the scale is met."""
    load = start
    rising = yield from _try(load, tried)
    end = scale.most if rising else scale.least
    while load != end:
        before = load
        load = scale.times(load, factor if rising else 1 / factor)
        if (yield from _try(load, tried)) != rising:
            return (before, load) if rising else (load, before)
        factor = min(factor**2, DOUBLING)
    return (load, None) if rising else (None, load)


def _try(load: float, tried: dict[float, bool]):
    if load not in tried:
        tried[load] = yield load
    return tried[load]
