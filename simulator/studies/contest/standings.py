"""Rivals tuned on one split, and the candidate against them on the other, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from simulator.studies.contest.entrants import Entrant, Rival
from simulator.studies.contest.plan import MIXTURE, ContestCell, ContestPlan, Deployment
from simulator.studies.contest.scores import Contest, Score, geometric
from traces.common.errors import InputError
from traces.common.intervals import Interval

TUNING, REPORT = "tuning", "report"  # the split on which the best rival was chosen
ONE_SETTING, PER_LOAD, PER_CELL = "one setting", "tuned per load", "best in every cell"


@dataclass(frozen=True, slots=True)
class Tuned:
    """A rival on one deployment: best at every load, and best over all of them at one setting."""

    policy: str
    per_load: dict[int, Entrant]  # by concurrency
    logs: dict[int, float]  # log tokens per second of these, mixture of the tuning split
    single: Entrant
    single_log_mean: float  # mean over loads, likewise

    def at(self, load: int, against: str) -> Entrant:
        return self.single if against == ONE_SETTING else self.per_load[load]


@dataclass(frozen=True, slots=True)
class Versus:
    """The candidate and the best other in one cell."""

    cell: ContestCell
    best_by: str
    candidate: Score
    score: Score  # of the other

    @property
    def other(self) -> Entrant:
        return self.score.entrant

    @property
    def ratio(self) -> Interval:
        return geometric([(self.candidate, self.score)])

    @property
    def beyond_table(self) -> bool:
        """Whether a step of either lies outside what was measured (a clamped context does not)."""
        return any(one.share("modelled", window=True) > 0 for one in (self.candidate, self.score))


@dataclass(frozen=True, slots=True)
class Overall:
    """Geometric mean of the ratio over a deployment's loads, and its domains or their mixture."""

    deployment: Deployment
    cells: str  # domains or mixture
    against: str  # ONE_SETTING, PER_LOAD or PER_CELL
    best_by: str
    other: str  # policy, with its setting where there is one
    ratio: Interval
    worst: float  # smallest ratio over the cells


@dataclass(frozen=True, slots=True)
class Compared:
    """What a tournament came to; `everywhere` has a line for each rival, see `_everywhere`."""

    plan: ContestPlan
    cells: Sequence[Versus]
    overall: Sequence[Overall]
    everywhere: Sequence[dict[str, Any]]


def played(contest: Contest) -> Compared:
    """Tune, play and compare.

    Raises:
        InputError: a candidate that refuses a deployment, or nobody who plays it.
    """
    plan = contest.plan
    contest.play(  # every setting of every rival at every load; one order table after the other
        (plan.tuning_cell(deployment, concurrency), entrant)
        for deployment, rival in product(plan.deployments, plan.rivals)
        for entrant in plan.entrants(rival, deployment)
        for concurrency in plan.concurrency
    )
    standings = [Standings(contest, deployment) for deployment in plan.deployments]
    contest.play(pair for one in standings for pair in one.pairs())
    cells = [
        one.versus(cell, best_by)
        for one in standings
        for cell in one.cells()
        for best_by in (TUNING, REPORT)
    ]
    overall = [line for one in standings for line in one.overall()]
    return Compared(plan, cells, overall, _everywhere(standings))


class Standings:
    """One deployment: its rivals, tuned, and comparisons once the report split is played."""

    def __init__(self, contest: Contest, deployment: Deployment) -> None:
        """Raises InputError where no rival plays the deployment."""
        self.contest, self.plan, self.deployment = contest, contest.plan, deployment
        self.domains = self.plan.domains(deployment)
        self.rivals = [one for one in map(self._tuned, self.plan.rivals) if one is not None]
        if not self.rivals:
            raise InputError(
                f"tournament.rivals: none of them plays {deployment.trace} on "
                f"{deployment.profile}; accepted: at least one that does"
            )

    def _tuned(self, rival: Rival) -> Tuned | None:
        """The best settings, of equal ones the first; None where it refuses in all of them."""
        loads, table = self.plan.concurrency, {}
        for entrant in self.plan.entrants(rival, self.deployment):
            cells = [self.plan.tuning_cell(self.deployment, load) for load in loads]
            scores = [self.contest.score(cell, entrant) for cell in cells]
            if not any(isinstance(score, str) for score in scores):
                table[entrant.key] = entrant, [float(np.log(one.pooled)) for one in scores]
        if not table:
            return None
        entrants, logs = zip(*table.values(), strict=True)
        logs = np.array(logs)  # (settings, loads)
        best, means = logs.argmax(axis=0), logs.mean(axis=1)
        return Tuned(
            policy=rival.policy,
            per_load={load: entrants[i] for load, i in zip(loads, best, strict=True)},
            logs=dict(zip(loads, logs.max(axis=0).tolist(), strict=True)),
            single=entrants[int(means.argmax())],
            single_log_mean=float(means.max()),
        )

    def pairs(self) -> Iterator[tuple[ContestCell, Entrant]]:
        """What must be played on the report split."""
        for load in self.plan.concurrency:
            for entrant in (self.plan.candidate, *self._entrants(load)):
                for domain in self.domains:
                    yield self.plan.report_cell(self.deployment, load, domain), entrant

    def _entrants(self, load: int) -> list[Entrant]:
        """Settings that play at a load, each once: tuned for it, and single ones."""
        both = [one for rival in self.rivals for one in (rival.per_load[load], rival.single)]
        return list({entrant.key: entrant for entrant in both}.values())

    def cells(self, *domains: str) -> list[ContestCell]:
        """Report cells by domain (all of them unless some are named), then load."""
        places = product(domains or self.domains, self.plan.concurrency)
        return [self.plan.report_cell(self.deployment, load, domain) for domain, load in places]

    def versus(self, cell: ContestCell, best_by: str) -> Versus:
        """Against the best rival of the cell, by the tuning split or by the cell itself."""
        ours, theirs = self._pair(cell, self._best(cell, best_by))
        return Versus(cell, best_by, ours, theirs)

    def overall(self) -> Iterator[Overall]:
        """Over the domains' cells and over the mixture's, against the best other of each kind."""
        *domains, mixture = self.domains
        groups = {"domains": self.cells(*domains)} if domains else {}
        groups[MIXTURE] = self.cells(mixture)
        kinds = product((ONE_SETTING, PER_LOAD, PER_CELL), (TUNING, REPORT))
        for (name, cells), (against, best_by) in product(groups.items(), kinds):
            if against == PER_CELL:
                others = [self._best(cell, best_by) for cell in cells]
                label = " ".join(dict.fromkeys(other.policy for other in others))
            else:
                means = [self._log_mean(one, cells, against, best_by) for one in self.rivals]
                rival = self.rivals[int(np.argmax(means))]
                others = [rival.at(cell.concurrency, against) for cell in cells]
                one_setting = against == ONE_SETTING or len(self.plan.concurrency) == 1
                label = f"{rival.policy} {others[0].setting}" if one_setting else rival.policy
            pairs = [self._pair(cell, other) for cell, other in zip(cells, others, strict=True)]
            ratio, worst = geometric(pairs), min(map(_ratio, pairs))
            yield Overall(self.deployment, name, against, best_by, label, ratio, worst)

    def _log_mean(
        self, rival: Tuned, cells: Sequence[ContestCell], against: str, best_by: str
    ) -> float:
        """Mean log tokens per second of a rival, on the tuning split or in these cells."""
        if best_by == TUNING and against == ONE_SETTING:
            return rival.single_log_mean
        if best_by == TUNING:
            return float(np.mean(list(rival.logs.values())))
        scores = [self._score(cell, rival.at(cell.concurrency, against)) for cell in cells]
        return float(np.mean([np.log(score.pooled) for score in scores]))

    def tuned_ratios(self) -> dict[str, list[float]]:
        """Candidate over each rival tuned per load, in every report cell."""
        cells = self.cells()
        return {
            one.policy: [_ratio(self._pair(cell, one.per_load[cell.concurrency])) for cell in cells]
            for one in self.rivals
        }

    def _best(self, cell: ContestCell, best_by: str) -> Entrant:
        load = cell.concurrency
        if best_by == TUNING:
            return max(self.rivals, key=lambda rival: rival.logs[load]).per_load[load]
        return max(self._entrants(load), key=lambda one: self._score(cell, one).pooled)

    def _pair(self, cell: ContestCell, other: Entrant) -> tuple[Score, Score]:
        """The candidate's score, and the other's."""
        return self._score(cell, self.plan.candidate), self._score(cell, other)

    def _score(self, cell: ContestCell, entrant: Entrant) -> Score:
        score = self.contest.score(cell, entrant)
        if isinstance(score, str):
            raise InputError(f"{entrant.policy} {entrant.setting}: {score}")
        return score


def _ratio(pair: tuple[Score, Score]) -> float:
    ours, theirs = pair
    return ours.pooled / theirs.pooled


def _everywhere(standings: Sequence[Standings]) -> list[dict[str, Any]]:
    """Rivals that play in all deployments, tuned for every load, over all report cells.

    Geometric mean of the candidate's throughput over theirs; the strongest first.
    """
    found = [one.tuned_ratios() for one in standings]
    lines = []
    for policy in found[0]:
        if all(policy in ratios for ratios in found):
            ratios = np.concatenate([one[policy] for one in found])
            mean = float(np.exp(np.log(ratios).mean()))
            line = {"other": policy, "cells": len(ratios), "ratio": mean}
            lines.append(line | {"worst": float(ratios.min())})
    return sorted(lines, key=lambda line: line["ratio"])
