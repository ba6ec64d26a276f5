"""The candidate against its rivals on the report split, cell by cell and over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.studies.contest.entrants import Entrant
from simulator.studies.contest.plan import MIXTURE, Deployment, Plan
from simulator.studies.contest.scores import Cell, Score, Scores
from simulator.studies.contest.tuning import Field, Tuned
from traces.common.errors import InputError
from traces.common.intervals import Interval, interval

TUNING, REPORT = "tuning", "report"  # the split on which the best rival was chosen
ONE_SETTING, PER_LOAD, PER_CELL = "one setting", "tuned per load", "best in every cell"


@dataclass(frozen=True, slots=True)
class Versus:
    """The candidate and the best other in one cell."""

    cell: Cell
    best_by: str
    candidate: Score
    other: Entrant
    score: Score
    ratio: Interval

    @property
    def beyond_table(self) -> bool:
        """Whether a step of either lies outside what was measured (a clamped context does not)."""
        return self.candidate.modelled > 0 or self.score.modelled > 0


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
class Everywhere:
    """A rival, tuned for every load of every deployment, over all report cells."""

    other: str
    cells: int
    ratio: float  # geometric mean of the candidate's throughput over its
    worst: float


def report_pairs(
    plan: Plan, fields: Sequence[tuple[Deployment, Field]]
) -> Iterator[tuple[Cell, Entrant]]:
    """What must be played on the report split."""
    for deployment, found in fields:
        for concurrency in plan.concurrency:
            for entrant in (plan.candidate, *found.entrants(concurrency)):
                for domain in plan.domains(deployment):
                    yield Cell(deployment, plan.split_report, domain, concurrency), entrant


class Standings:
    """Comparisons of one deployment whose simulations are done."""

    def __init__(self, plan: Plan, scores: Scores, deployment: Deployment, found: Field) -> None:
        """Raises InputError where the candidate refuses the deployment, or nobody is left."""
        self.plan, self.deployment, self.field, self._scores = plan, deployment, found, scores
        if not found.rivals:
            raise InputError(
                f"tournament.rivals: none of them plays {deployment.trace} on "
                f"{deployment.profile}; accepted: at least one that does"
            )

    def cells(self) -> list[Cell]:
        """Report cells by domain, then load."""
        return [cell for domain in self.plan.domains(self.deployment) for cell in self._row(domain)]

    def versus(self, cell: Cell, best_by: str) -> Versus:
        """Against the best rival of the cell, by the tuning split or by the cell itself."""
        other = self._best(cell, best_by)
        candidate, score = self._score(cell, self.plan.candidate), self._score(cell, other)
        ratio = _ratio([(candidate, score)])
        return Versus(cell, best_by, candidate, other, score, ratio)

    def overall(self) -> list[Overall]:
        """Over the domains' cells and over the mixture's, against the best other of each kind."""
        domains = self.plan.domains(self.deployment)
        groups = {"domains": domains[:-1], MIXTURE: domains[-1:]}
        return [
            one
            for name, members in groups.items()
            if members
            for one in self._overall(name, [cell for d in members for cell in self._row(d)])
        ]

    def tuned(self) -> dict[str, list[float]]:
        """Candidate over each rival tuned per load, in every report cell."""
        cells = self.cells()
        return {
            rival.policy: [self._ratio_to(rival.per_load[cell.concurrency], cell) for cell in cells]
            for rival in self.field.rivals
        }

    def _ratio_to(self, other: Entrant, cell: Cell) -> float:
        return self._score(cell, self.plan.candidate).tokens_s / self._score(cell, other).tokens_s

    def _overall(self, name: str, cells: list[Cell]) -> Iterator[Overall]:
        loads = {cell.concurrency for cell in cells}
        rivals = self.field.rivals
        kinds = (
            (ONE_SETTING, lambda r, cell: r.single, lambda r: r.single_log_mean),
            (PER_LOAD, lambda r, cell: r.per_load[cell.concurrency], _tuning_mean),
        )
        for against, entrant_of, tuning_mean in kinds:
            log_mean = self._log_means(cells, entrant_of)
            chosen = {TUNING: max(rivals, key=tuning_mean), REPORT: max(rivals, key=log_mean)}
            for best_by, rival in chosen.items():
                others = [entrant_of(rival, cell) for cell in cells]
                one = against == ONE_SETTING or len(loads) == 1
                label = f"{rival.policy} {others[0].setting}" if one else rival.policy
                yield self._line(name, cells, others, against, best_by, label)
        for best_by in (TUNING, REPORT):
            others = [self._best(cell, best_by) for cell in cells]
            label = " ".join(dict.fromkeys(other.policy for other in others))
            yield self._line(name, cells, others, PER_CELL, best_by, label)

    def _log_means(self, cells: list[Cell], entrant_of: Callable) -> Callable[[Tuned], float]:
        def mean(rival: Tuned) -> float:
            scores = [self._score(cell, entrant_of(rival, cell)) for cell in cells]
            return float(np.mean([np.log(score.tokens_s) for score in scores]))

        return mean

    def _line(self, name, cells, others, against, best_by, label) -> Overall:
        pairs = [
            (self._score(cell, self.plan.candidate), self._score(cell, other))
            for cell, other in zip(cells, others, strict=True)
        ]
        worst = min(ours.tokens_s / theirs.tokens_s for ours, theirs in pairs)
        return Overall(self.deployment, name, against, best_by, label, _ratio(pairs), worst)

    def _row(self, domain: str) -> list[Cell]:
        plan = self.plan
        return [Cell(self.deployment, plan.split_report, domain, k) for k in plan.concurrency]

    def _best(self, cell: Cell, best_by: str) -> Entrant:
        load = cell.concurrency
        if best_by == TUNING:
            return max(self.field.rivals, key=lambda r: r.tuning_tokens_s[load]).per_load[load]
        return max(self.field.entrants(load), key=lambda e: self._score(cell, e).tokens_s)

    def _score(self, cell: Cell, entrant: Entrant) -> Score:
        score = self._scores.of(cell, entrant)
        if isinstance(score, str):
            raise InputError(f"{entrant.policy} {entrant.setting}: {score}")
        return score


def _tuning_mean(rival: Tuned) -> float:
    return float(np.mean(np.log(list(rival.tuning_tokens_s.values()))))


def _ratio(pairs: Sequence[tuple[Score, Score]]) -> Interval:
    """Geometric mean of ours over theirs; every load of a domain sees the same resample."""
    value = np.exp(np.mean([np.log(a.tokens_s / b.tokens_s) for a, b in pairs]))
    draws = np.mean([a.log_draws - b.log_draws for a, b in pairs], axis=0)
    by_domain = {ours.weights_seed: ours.prompts for ours, _ in pairs}
    return interval(float(value), np.exp(draws), sum(by_domain.values()))


def everywhere(standings: Sequence[Standings]) -> list[Everywhere]:
    """Rivals that play in all deployments, the strongest first."""
    found = [one.tuned() for one in standings]
    lines = []
    for policy in found[0]:
        if all(policy in ratios for ratios in found):
            ratios = np.concatenate([one[policy] for one in found])
            mean = float(np.exp(np.log(ratios).mean()))
            lines.append(Everywhere(policy, len(ratios), mean, float(ratios.min())))
    return sorted(lines, key=lambda line: line.ratio)
