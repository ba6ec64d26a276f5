"""The searches of all seeds, side by side; every trial is kept before it is used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simulator.progress import Progress
from simulator.studies.capacity.plan import Plan
from simulator.studies.capacity.search import FURTHER, Found, Scale, Search, search
from simulator.studies.capacity.trial import Probe, Trial, read_trial, try_out
from simulator.studies.capacity.verdict import judge
from simulator.studies.league import Players
from simulator.studies.store import Store

NAME = "capacity.jsonl"


@dataclass(frozen=True, slots=True)
class Sought:
    """What the search of one seed tried and found."""

    seed: int
    found: Found
    trials: Mapping[float, Trial]  # by load

    def at(self, load: float | None) -> Trial | None:
        return None if load is None else self.trials[load]


def seek(plan: Plan, folder: Path) -> tuple[list[Sought], int]:
    """The answer of every seed, and how many trials had to be run.

    The first seed's search begins at the configured load, the others' at its answer.
    """
    store = Store(folder, NAME, read_trial, "a search for a capacity")
    scale = Scale(plan.least, plan.most, plan.tolerance, plan.whole)
    first, *others = plan.seeds
    with (
        Players(plan.workers, try_out) as players,
        Progress(_expected(plan), "trials") as progress,
    ):
        seeker = _Seeker(plan, store, players, progress)
        sought = seeker.run({first: search(scale, plan.start)})
        known = sought[0].found.low
        near = plan.least if known is None else known
        sought += seeker.run({seed: search(scale, near, near=True) for seed in others})
    return sought, seeker.played


class _Seeker:
    """Asks every search for its next load, plays them all, and tells each what it came to."""

    def __init__(self, plan: Plan, store: Store, players: Players, progress: Progress) -> None:
        self._plan, self._store, self._players = plan, store, players
        self._progress = progress
        self.played = 0

    def run(self, searches: Mapping[int, Search]) -> list[Sought]:
        """By seed, in the order given."""
        trials: dict[int, dict[float, Trial]] = {seed: {} for seed in searches}
        found: dict[int, Found] = {}
        wanted = {seed: next(one) for seed, one in searches.items()}
        while wanted:
            known = self._trials(wanted)
            for seed, load in list(wanted.items()):
                trial = trials[seed][load] = known[seed]
                try:
                    wanted[seed] = searches[seed].send(judge(self._plan, trial).met)
                except StopIteration as end:
                    found[seed] = end.value
                    del wanted[seed]
        return [Sought(seed, found[seed], trials[seed]) for seed in searches]

    def _trials(self, wanted: Mapping[int, float]) -> dict[int, Trial]:
        probes = {seed: Probe(self._plan, load, seed) for seed, load in wanted.items()}
        keys = {seed: probe.key for seed, probe in probes.items()}
        missing = {keys[seed]: probes[seed] for seed in probes if keys[seed] not in self._store}
        for key, trial in self._players.play(missing):
            self._store.add(key, {"of": self._plan.of}, trial)
            self.played += 1
            self._progress.update(self.played)
        return {seed: self._store[key] for seed, key in keys.items()}


def _expected(plan: Plan) -> int:
    """About how many trials there will be, for the bar."""
    halvings = max(1, math.ceil(math.log2(1 / plan.tolerance)))
    return 4 + halvings + len(FURTHER) + (len(plan.seeds) - 1) * (4 + len(FURTHER))
