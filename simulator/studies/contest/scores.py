"""Results by where and by whom: the simulations a tournament needs, and their pooled scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from statistics import fmean
from typing import Any

import numpy as np

from simulator.engine.inputs import choose_sequences
from simulator.studies.capacity.answer import over_seeds
from simulator.studies.contest.entrants import Entrant
from simulator.studies.contest.grid import Kept
from simulator.studies.contest.plan import Deployment, Plan
from simulator.studies.contest.play import Match, Result
from simulator.studies.store import Store
from traces.common.intervals import (
    Interval,
    Sums,
    interval,
    prompts_of,
    resampled,
    resampled_prompts,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One load on one domain (or the mixture) of a deployment's split."""

    deployment: Deployment
    split: str
    domain: str
    concurrency: int

    def match(self, plan: Plan, entrant: Entrant, seed: int) -> Match:
        """The simulation of one seed."""
        trace = self.deployment.trace_node(self.split, self.domain)
        load = plan.settings(self.concurrency, seed, len(self.sequences))
        return Match(entrant.node, trace, self.deployment.latency, load)

    @property
    def sequences(self) -> np.ndarray:
        trace = self.deployment.trace_node(self.split, self.domain)
        return choose_sequences(trace, self.deployment.recording)

    def words(self, entrant: Entrant, seed: int) -> dict[str, Any]:
        """For whoever reads the store."""
        return {
            "policy": entrant.policy,
            "setting": entrant.setting,
            "profile": self.deployment.profile,
            "trace": self.deployment.trace,
            "split": self.split,
            "domain": self.domain,
            "concurrency": self.concurrency,
            "seed": seed,
        }


@dataclass(frozen=True)
class Score:
    """What a policy reached in a cell, over its seeds."""

    sums: Sums  # over all sequences of the cell
    nodes_per_request: float | None
    modelled: float
    clamped: float
    weights_seed: int
    resamples: int

    @property
    def tokens_s(self) -> float:
        return self.sums.value

    @property
    def prompts(self) -> int:
        return prompts_of(self.sums)

    @cached_property
    def log_draws(self) -> np.ndarray:
        """log tokens per second in every resample: (resamples,)."""
        weights = resampled_prompts(len(self.sums.per), self.resamples, self.weights_seed)
        values = resampled(self.sums, weights)
        return np.log(values, out=np.full(len(values), np.nan), where=values > 0)


class Scores:
    """Scores of played cells. Resamples depend on the cell's domain alone: loads share them."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self._plan, self._store = plan, store
        self._keys: dict[tuple, str] = {}
        self._scores: dict[tuple, Score | str] = {}

    def needed(self, pairs: Iterable[tuple[Cell, Entrant]]) -> dict[str, tuple[Match, dict]]:
        """Every simulation of these by key, with its words."""
        found = {}
        for cell, entrant in pairs:
            for seed in self._plan.seeds:
                match = cell.match(self._plan, entrant, seed)
                key = self._keys[self._place(cell, entrant, seed)] = match.key
                found[key] = (match, cell.words(entrant, seed))
        return found

    def of(self, cell: Cell, entrant: Entrant) -> Score | str:
        """The score, or why the policy refused, once its simulations are in the store."""
        place = self._place(cell, entrant)
        if place not in self._scores:
            self._scores[place] = self._pooled(cell, entrant)
        return self._scores[place]

    def _pooled(self, cell: Cell, entrant: Entrant) -> Score | str:
        keys = [self._keys[self._place(cell, entrant, seed)] for seed in self._plan.seeds]
        results = [self._store[key] for key in keys]
        for result in results:
            if isinstance(result, str):
                return result
        nodes = [r.nodes_per_request for r in results if r.nodes_per_request is not None]
        return Score(
            sums=_total(results, cell.sequences),
            nodes_per_request=float(np.mean(nodes)) if nodes else None,
            modelled=float(np.mean([result.modelled for result in results])),
            clamped=float(np.mean([result.clamped for result in results])),
            weights_seed=_domain_seed(cell),
            resamples=self._plan.resamples,
        )

    @staticmethod
    def _place(cell: Cell, entrant: Entrant, *more: int) -> tuple:
        where = (cell.deployment.profile, cell.deployment.trace, cell.split, cell.domain)
        return (*where, cell.concurrency, entrant.key, *more)


def _total(results: list[Result], sequences: np.ndarray) -> Sums:
    amount, per = np.zeros(len(sequences)), np.zeros(len(sequences))
    for result in results:
        rows = np.searchsorted(sequences, result.prompts)
        amount[rows] += result.tokens
        per[rows] += result.seconds
    return Sums(amount, per)


def _domain_seed(cell: Cell) -> int:
    """Domains are resampled independently of each other; the mixture comes behind them."""
    domains = cell.deployment.recording.domains
    return domains.index(cell.domain) if cell.domain in domains else len(domains)


@dataclass(frozen=True)
class GridScore:
    """The runs of one setting at one load on one split, a seed each; `sequences` (P,) of it."""

    entrant: Entrant
    runs: tuple[Kept, ...]
    sequences: np.ndarray
    by_goodput: bool
    resamples: int

    @cached_property
    def values(self) -> list[float]:
        """Tokens, or requests within every limit, per second, by seed."""
        return [self._sums(run, self.by_goodput).value for run in self.runs]

    @property
    def value(self) -> float:
        """Mean over seeds."""
        return fmean(self.values)

    @property
    def tokens_s(self) -> float:
        return fmean(self._sums(run, False).value for run in self.runs)

    @property
    def attained(self) -> float:
        """Share of requests within every limit, all seeds' together."""
        good = sum(sum(run.good) for run in self.runs)
        return good / max(sum(run.judged + run.rejected for run in self.runs), 1)

    @property
    def over_seeds(self) -> Interval:
        return over_seeds(self.values)

    @cached_property
    def sums(self) -> Sums:
        """By prompt, all seeds' together."""
        return added([self._sums(run, self.by_goodput) for run in self.runs])

    @property
    def over_prompts(self) -> Interval:
        """Prompts resampled; all that one brought in all seeds stays together."""
        return interval(self.value, self.draws, prompts_of(self.sums))

    @cached_property
    def draws(self) -> np.ndarray:
        """The value in every resample of prompts: (resamples,)."""
        return resampled(self.sums, self._weights)

    @property
    def _weights(self) -> np.ndarray:
        return resampled_prompts(len(self.sequences), self.resamples, seed=0)

    def _sums(self, run: Kept, good: bool) -> Sums:
        return run.sums(good, self.rows(run), len(self.sequences))

    def rows(self, run: Kept) -> np.ndarray:
        return np.searchsorted(self.sequences, run.prompts)

    def mean(self, name: str) -> float | None:
        """Mean over seeds of a number of the runs; None where a run has none."""
        found = [getattr(run, name) for run in self.runs]
        return None if None in found else fmean(found)

    def level_ms(self, name: str) -> float | None:
        """Mean over seeds of the p99 of a latency."""
        found = [run.levels_ms[name] for run in self.runs]
        return None if None in found else fmean(found)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A score over the best one, paired: over prompts and over seeds."""

    over_prompts: Interval
    over_seeds: Interval

    @property
    def same(self) -> bool:
        """Whether they cannot be told apart: over prompts, over seeds, or by lack of either."""
        return _holds_one(self.over_prompts) or _holds_one(self.over_seeds)


def _holds_one(found: Interval) -> bool:
    return found.low is None or found.high is None or found.low <= 1 <= found.high


def against(score: GridScore, best: GridScore) -> Ratio:
    """The ratio of means: the same prompts resampled together, the same seeds paired."""
    if best.value <= 0:
        nothing = Interval(nan, None, None)
        return Ratio(nothing, nothing)
    value, other = score.value / best.value, best.draws
    draws = np.divide(score.draws, other, out=np.full(len(other), nan), where=other > 0)
    prompts = interval(value, draws, prompts_of(score.sums, best.sums))
    return Ratio(prompts, _paired(value, score.values, best.values))


def _paired(value: float, ours: Sequence[float], others: Sequence[float]) -> Interval:
    """By Student's t on the differences of each seed, over the other's mean."""
    apart = over_seeds([a - b for a, b in zip(ours, others, strict=True)])
    if apart.low is None:
        return Interval(value, None, None)
    mean = fmean(others)
    return Interval(value, 1 + apart.low / mean, 1 + apart.high / mean)


def added(parts: Sequence[Sums]) -> Sums:
    """Sums over the same prompts, one after the other."""
    return Sums(sum(part.amount for part in parts), sum(part.per for part in parts))


@dataclass(frozen=True, slots=True)
class InDomain:
    """One domain's requests in the runs of a score, in the company of all others'."""

    domain: str
    prompts: int
    speed: Interval  # tokens per second of a request's own stay, over prompts
    attained: float  # share of its judged requests within every limit


def in_domains(score: GridScore, domain_of: np.ndarray, names: Sequence[str]) -> list[InDomain]:
    """The domains that were served.

    Args:
        domain_of: (P,) index of each sequence's domain.
    """
    count, found = len(score.sequences), []
    runs = [(run, score.rows(run)) for run in score.runs]
    speed = added([run.speed(rows, count) for run, rows in runs])
    share = added([run.share(rows, count) for run, rows in runs])
    for index, name in enumerate(names):
        own = domain_of == index
        mine = Sums(speed.amount[own], speed.per[own])
        if mine.per.any():
            weights = resampled_prompts(int(own.sum()), score.resamples, seed=0)
            spread = interval(mine.value, resampled(mine, weights), prompts_of(mine))
            attained = Sums(share.amount[own], share.per[own]).value
            found.append(InDomain(name, prompts_of(mine), spread, attained))
    return found
