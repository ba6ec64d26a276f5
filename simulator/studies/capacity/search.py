"""Bracket, bisect, look further: which loads are tried, given what the ones before came to.

The searches of all seeds go side by side; every trial is kept before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from simulator.progress import Progress
from simulator.studies.capacity.plan import SearchPlan
from simulator.studies.capacity.trial import Probe, Trial, failures, try_out
from simulator.studies.runs import Result
from simulator.studies.store import Players, Store

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
    if low is None or high is None:
        return Found(low, high, ())
    while not scale.resolved(low, high):
        middle = scale.middle(low, high)
        if not low < middle < high:  # no finer digits
            break
        if (yield from _try(middle, tried)):
            low = middle
        else:
            high = middle
    for further in FURTHER:
        load = scale.times(high, further)
        if load > high:
            yield from _try(load, tried)
    return Found(low, high, tuple(sorted(load for load in tried if tried[load] and load > high)))


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


@dataclass(frozen=True, slots=True)
class Sought:
    """What the search of one seed tried and found."""

    seed: int
    found: Found
    trials: Mapping[float, Trial]  # by load

    @property
    def low(self) -> Trial | None:
        """At the answer."""
        return self.trials.get(self.found.low)

    @property
    def high(self) -> Trial | None:
        """At the next load tried, which is not met."""
        return self.trials.get(self.found.high)


def seek(plan: SearchPlan, store: Store) -> tuple[list[Sought], int]:
    """The answer of every seed, and how many trials had to be run.

    The first seed's search begins at the configured load, the others' at its answer.
    """
    asked, scale = plan.asked, Scale(plan.least, plan.most, plan.asked.tolerance, plan.whole)
    first, *others = plan.seeds
    halvings = max(1, math.ceil(math.log2(1 / asked.tolerance)))
    expected = 4 + halvings + len(FURTHER) + len(others) * (4 + len(FURTHER))  # about, for the bar
    with Players(asked.workers, try_out) as players, Progress(expected, "trials") as progress:
        seeker = _Seeker(plan, store, players, progress)
        sought = seeker.run({first: search(scale, plan.start)})
        known = sought[0].found.low
        near = plan.least if known is None else known
        sought += seeker.run({seed: search(scale, near, near=True) for seed in others})
    return sought, seeker.played


class _Seeker:
    """Asks every search for its next load, plays them all, and tells each what it came to."""

    def __init__(
        self, plan: SearchPlan, store: Store, players: Players, progress: Progress
    ) -> None:
        self._plan, self._store, self._players = plan, store, players
        self._progress = progress
        self.played = 0

    def run(self, searches: Mapping[int, Search]) -> list[Sought]:
        """By seed, in the order given."""
        trials: dict[int, dict[float, Trial]] = {seed: {} for seed in searches}
        found: dict[int, Found] = {}
        wanted = {seed: next(one) for seed, one in searches.items()}
        while wanted:
            known = self._results(wanted)
            for seed, load in list(wanted.items()):
                failed = failures(self._plan, known[seed])
                trials[seed][load] = Trial(load, seed, known[seed], failed)
                try:
                    wanted[seed] = searches[seed].send(not failed)
                except StopIteration as end:
                    found[seed] = end.value
                    del wanted[seed]
        return [Sought(seed, found[seed], trials[seed]) for seed in searches]

    def _results(self, wanted: Mapping[int, float]) -> dict[int, Result]:
        probes = {seed: Probe(self._plan, load, seed) for seed, load in wanted.items()}
        keys = {seed: probe.key for seed, probe in probes.items()}
        missing = {key: probes[seed] for seed, key in keys.items() if key not in self._store}
        for key, result in self._players.play(missing):
            words = {self._plan.of: missing[key].load, "seed": missing[key].seed}
            self._store.add(key, words, result)
            self.played += 1
            self._progress.update(self.played)
        return {seed: self._store[key] for seed, key in keys.items()}
