"""Tuning, ranking, and the load to run at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulator.recommend.options import Plan
from simulator.recommend.play import Kept, play, read_kept
from simulator.recommend.scores import Ratio, Score, against
from simulator.run import load
from simulator.tournament.league import play_all
from simulator.tournament.rivals import Entrant
from simulator.tournament.store import Store

NAME = "recommend.jsonl"


@dataclass(frozen=True, slots=True)
class Place:
    """A policy in the ranking of a load, with its best setting."""

    score: Score
    meets: bool  # whether enough requests are within every limit; without limits always
    ratio: Ratio  # to the first

    @property
    def policy(self) -> str:
        return self.score.entrant.policy


@dataclass(frozen=True, slots=True)
class Ranking:
    """All policies at one load, the best first."""

    concurrency: int | None
    places: tuple[Place, ...]

    @property
    def best(self) -> Place:
        return self.places[0]

    @property
    def same(self) -> list[Place]:
        """Others that cannot be told from the best, and meet what it meets."""
        return [one for one in self.places[1:] if one.ratio.same and one.meets == self.best.meets]


@dataclass(slots=True)
class Contest:
    """The candidates' runs: what must be played, and what it came to."""

    plan: Plan
    store: Store
    keys: dict[tuple, str] = field(default_factory=dict)
    played: int = 0
    refused: dict[str, str] = field(default_factory=dict)  # a candidate's name to its reason

    def play(self, entrants: Sequence[tuple[int | None, Entrant]], split: str, seeds) -> None:
        """Bring the runs of these, at their loads, into the store."""
        found: dict[str, tuple[Any, dict[str, Any]]] = {}
        for concurrency, entrant in entrants:
            for seed in seeds:
                config = self.plan.config_of(entrant, split, concurrency, seed)
                key = load(config).identity(play.__module__)
                self.keys[_place(entrant, split, concurrency, seed)] = key
                found[key] = config, _words(entrant, split, concurrency, seed)
        self.played += play_all(found, self.store, self.plan.workers, play)

    def score(self, concurrency: int | None, entrant: Entrant, split: str, seeds) -> Score | None:
        """What was played; None, and the reason noted, where the policy refused."""
        keys = [self.keys[_place(entrant, split, concurrency, seed)] for seed in seeds]
        runs: list[Kept | str] = [self.store[key] for key in keys]
        reasons = [run for run in runs if isinstance(run, str)]
        if reasons:
            self.refused[f"{entrant.policy} {entrant.setting}"] = reasons[0]
            return None
        plan = self.plan
        by_goodput = plan.limits is not None
        return Score(entrant, tuple(runs), plan.sequences(split), by_goodput, plan.resamples)


def open_contest(plan: Plan, folder) -> Contest:
    """With what `folder` holds already."""
    return Contest(plan, Store(folder, NAME, read_kept, "a recommendation"))


def rankings(contest: Contest) -> list[Ranking]:
    """By load; policies that refuse it in all settings are left out of it.

    Raises:
        InputError: see `simulator.recommend.play`.
    """
    plan = contest.plan
    trying = [(k, entrant) for k in plan.concurrency for entrant in _all(plan)]
    contest.play(trying, plan.split_tune, plan.tuning_seeds)
    tuned = [(k, entrant) for k in plan.concurrency for entrant in _tuned(contest, k)]
    contest.play(tuned, plan.split_report, plan.seeds)
    found = []
    for concurrency in plan.concurrency:
        own = [entrant for k, entrant in tuned if k == concurrency]
        scores = [contest.score(concurrency, one, plan.split_report, plan.seeds) for one in own]
        ranked = ranking(plan, concurrency, [score for score in scores if score is not None])
        if ranked is not None:
            found.append(ranked)
    return found


def ranking(plan: Plan, concurrency: int | None, scores: Sequence[Score]) -> Ranking | None:
    """Those that meet the objectives first, then by mean over seeds; None where nobody plays."""
    if not scores:
        return None
    ranked = sorted(scores, key=lambda one: (not meets(plan, one), -one.value, -one.tokens_s))
    best = ranked[0]
    places = [Place(one, meets(plan, one), against(one, best)) for one in ranked]
    return Ranking(concurrency, tuple(places))


def meets(plan: Plan, score: Score) -> bool:
    """Whether enough of its requests are within every limit."""
    return plan.limits is None or score.attained >= plan.attained


def best_load(plan: Plan, found: Sequence[Ranking]) -> Ranking:
    """The load whose best policy does most per second, among those that meet the objectives.

    All loads run on the same GPUs, so most per second is most per GPU.
    """
    return max(found, key=lambda one: (one.best.meets, one.best.score.value))


def _all(plan: Plan) -> Iterator[Entrant]:
    for rival in plan.rivals:
        yield from plan.entrants(rival)


def _tuned(contest: Contest, concurrency: int | None) -> Iterator[Entrant]:
    """The best setting of every policy on the tuning split; equal ones: the first of the grid."""
    plan = contest.plan
    for rival in plan.rivals:
        scores = [
            contest.score(concurrency, entrant, plan.split_tune, plan.tuning_seeds)
            for entrant in plan.entrants(rival)
        ]
        playing = [score for score in scores if score is not None]
        if playing:
            yield max(playing, key=lambda one: (one.value, one.tokens_s)).entrant


def _place(entrant: Entrant, split: str, concurrency: int | None, seed: int) -> tuple:
    return entrant.key, split, concurrency, seed


def _words(entrant: Entrant, split: str, concurrency: int | None, seed: int) -> dict[str, Any]:
    """For whoever reads the store."""
    return {
        "policy": entrant.policy,
        "setting": entrant.setting,
        "split": split,
        "max_concurrency": concurrency,
        "seed": seed,
    }
