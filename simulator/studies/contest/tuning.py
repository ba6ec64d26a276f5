"""The best setting of every rival, on the tuning split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.engine.run import load
from simulator.studies.contest.entrants import Entrant
from simulator.studies.contest.grid import Kept, play_grid, read_kept
from simulator.studies.contest.plan import MIXTURE, Deployment, Plan, RecommendPlan
from simulator.studies.contest.scores import Cell, GridScore, Ratio, Score, Scores, against
from simulator.studies.league import play_all
from simulator.studies.store import Store


@dataclass(frozen=True, slots=True)
class Tuned:
    """A rival on one deployment: best at every load, and best over all of them at one setting."""

    policy: str
    per_load: dict[int, Entrant]  # by concurrency
    tuning_tokens_s: dict[int, float]  # of these, mixture of the tuning split
    single: Entrant
    single_log_mean: float  # mean over loads of log tokens per second, tuning split


@dataclass(frozen=True, slots=True)
class Field:
    """All tuned rivals of a deployment, and why others or some of their settings are missing."""

    rivals: tuple[Tuned, ...]
    refused: dict[str, str] = field(default_factory=dict)

    def entrants(self, concurrency: int) -> list[Entrant]:
        """Settings to play at a load, each once: tuned for it, and single ones."""
        both = [e for r in self.rivals for e in (r.per_load[concurrency], r.single)]
        return list({entrant.key: entrant for entrant in both}.values())


def tuning_pairs(plan: Plan) -> Iterator[tuple[Cell, Entrant]]:
    """Every setting of every rival at every load; one order table after the other."""
    for deployment in plan.deployments:
        for rival in plan.rivals:
            for entrant in _others(plan, rival, deployment):
                for concurrency in plan.concurrency:
                    yield _cell(plan, deployment, concurrency), entrant


def tune(plan: Plan, scores: Scores, deployment: Deployment) -> Field:
    """The best settings; a rival that refuses the deployment in all of them is left out.

    Equal ones: the first of the grid.
    """
    found, refused = [], {}
    for rival in plan.rivals:
        entrants = _others(plan, rival, deployment)
        logs = {}
        for entrant in entrants:
            per_load = [_log(plan, scores, deployment, k, entrant) for k in plan.concurrency]
            reasons = [one for one in per_load if isinstance(one, str)]
            if reasons:
                refused[f"{entrant.policy} {entrant.setting}"] = reasons[0]
            else:
                logs[entrant.key] = per_load
        playing = [entrant for entrant in entrants if entrant.key in logs]
        if playing:
            table = np.array([logs[entrant.key] for entrant in playing])  # (settings, loads)
            found.append(_tuned(plan, rival.policy, playing, table))
    return Field(tuple(found), refused)


def _others(plan: Plan, rival, deployment: Deployment) -> list[Entrant]:
    """A candidate does not play against itself."""
    entrants = rival.entrants(deployment.recording.depths)
    return [entrant for entrant in entrants if entrant.key != plan.candidate.key]


def _tuned(plan: Plan, policy: str, entrants: list[Entrant], table: np.ndarray) -> Tuned:
    best, means = table.argmax(axis=0), table.mean(axis=1)
    return Tuned(
        policy=policy,
        per_load={k: entrants[i] for k, i in zip(plan.concurrency, best, strict=True)},
        tuning_tokens_s=dict(
            zip(plan.concurrency, np.exp(table.max(axis=0)).tolist(), strict=True)
        ),
        single=entrants[int(means.argmax())],
        single_log_mean=float(means.max()),
    )


def _log(plan, scores: Scores, deployment, concurrency: int, entrant: Entrant) -> float | str:
    score = scores.of(_cell(plan, deployment, concurrency), entrant)
    return float(np.log(score.tokens_s)) if isinstance(score, Score) else score


def _cell(plan: Plan, deployment: Deployment, concurrency: int) -> Cell:
    return Cell(deployment, plan.split_tune, MIXTURE, concurrency)


# ---------------- Tuning, ranking, and the load to run at.


NAME = "recommend.jsonl"


@dataclass(frozen=True, slots=True)
class Place:
    """A policy in the ranking of a load, with its best setting."""

    score: GridScore
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

    plan: RecommendPlan
    store: Store
    keys: dict[tuple, str] = field(default_factory=dict)
    played: int = 0
    refused: dict[str, str] = field(default_factory=dict)  # a candidate's name to its reason

    def play_grid(self, entrants: Sequence[tuple[int | None, Entrant]], split: str, seeds) -> None:
        """Bring the runs of these, at their loads, into the store."""
        found: dict[str, tuple[Any, dict[str, Any]]] = {}
        for concurrency, entrant in entrants:
            for seed in seeds:
                config = self.plan.config_of(entrant, split, concurrency, seed)
                key = load(config).identity(play_grid.__module__)
                self.keys[_place(entrant, split, concurrency, seed)] = key
                found[key] = config, _words(entrant, split, concurrency, seed)
        self.played += play_all(found, self.store, self.plan.workers, play_grid)

    def score(
        self, concurrency: int | None, entrant: Entrant, split: str, seeds
    ) -> GridScore | None:
        """What was played; None, and the reason noted, where the policy refused."""
        keys = [self.keys[_place(entrant, split, concurrency, seed)] for seed in seeds]
        runs: list[Kept | str] = [self.store[key] for key in keys]
        reasons = [run for run in runs if isinstance(run, str)]
        if reasons:
            self.refused[f"{entrant.policy} {entrant.setting}"] = reasons[0]
            return None
        plan = self.plan
        by_goodput = plan.limits is not None
        return GridScore(entrant, tuple(runs), plan.sequences(split), by_goodput, plan.resamples)


def open_contest(plan: RecommendPlan, folder) -> Contest:
    """With what `folder` holds already."""
    return Contest(plan, Store(folder, NAME, read_kept, "a recommendation"))


def rankings(contest: Contest) -> list[Ranking]:
    """By load; policies that refuse it in all settings are left out of it.

    Raises:
        InputError: see `simulator.studies.contest.grid`.
    """
    plan = contest.plan
    trying = [(k, entrant) for k in plan.concurrency for entrant in _all(plan)]
    contest.play(trying, plan.split_tune, plan.tuning_seeds)
    tuned = [(k, entrant) for k in plan.concurrency for entrant in _tuned_of_choose(contest, k)]
    contest.play(tuned, plan.split_report, plan.seeds)
    found = []
    for concurrency in plan.concurrency:
        own = [entrant for k, entrant in tuned if k == concurrency]
        scores = [contest.score(concurrency, one, plan.split_report, plan.seeds) for one in own]
        ranked = ranking(plan, concurrency, [score for score in scores if score is not None])
        if ranked is not None:
            found.append(ranked)
    return found


def ranking(
    plan: RecommendPlan, concurrency: int | None, scores: Sequence[GridScore]
) -> Ranking | None:
    """Those that meet the objectives first, then by mean over seeds; None where nobody plays."""
    if not scores:
        return None
    ranked = sorted(scores, key=lambda one: (not meets(plan, one), -one.value, -one.tokens_s))
    best = ranked[0]
    places = [Place(one, meets(plan, one), against(one, best)) for one in ranked]
    return Ranking(concurrency, tuple(places))


def meets(plan: RecommendPlan, score: GridScore) -> bool:
    """Whether enough of its requests are within every limit."""
    return plan.limits is None or score.attained >= plan.attained


def best_load(plan: RecommendPlan, found: Sequence[Ranking]) -> Ranking:
    """The load whose best policy does most per second, among those that meet the objectives.

    All loads run on the same GPUs, so most per second is most per GPU.
    """
    return max(found, key=lambda one: (one.best.meets, one.best.score.value))


def _all(plan: RecommendPlan) -> Iterator[Entrant]:
    for rival in plan.rivals:
        yield from plan.entrants(rival)


def _tuned_of_choose(contest: Contest, concurrency: int | None) -> Iterator[Entrant]:
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
