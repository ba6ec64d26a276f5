"""Results by where and by whom: the runs that a contest needs, and the scores they come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from statistics import fmean

import numpy as np

from simulator.studies.contest.entrants import Entrant
from simulator.studies.contest.plan import ContestCell, ContestPlan
from simulator.studies.runs import Result
from simulator.studies.store import Store, play_all
from traces.common.intervals import (
    Interval,
    Sums,
    interval,
    over_seeds,
    prompts_of,
    resampled,
    resampled_prompts,
)


@dataclass(frozen=True)
class Score:
    """The runs of one setting in one place, a seed each; `sequences` (P,) are all that is there."""

    entrant: Entrant
    runs: tuple[Result, ...]
    sequences: np.ndarray
    by_goodput: bool
    resamples: int
    draw: int = 0  # seed of the resamples: scores are compared under the same one

    @cached_property
    def values(self) -> list[float]:
        """Tokens, or requests within every limit, per second, by seed."""
        return [run.sums(self.by_goodput, self.sequences).value for run in self.runs]

    @property
    def value(self) -> float:
        """Mean over seeds."""
        return fmean(self.values)

    @property
    def tokens_s(self) -> float:
        """Mean over seeds."""
        return fmean(run.sums(False, self.sequences).value for run in self.runs)

    @property
    def pooled(self) -> float:
        """The value of all seeds' prompts together."""
        return self.sums.value

    @property
    def attained(self) -> float:
        """Share of requests within every limit, all seeds' together."""
        good = sum(sum(run.good) for run in self.runs)
        return good / max(sum(run.to_judge for run in self.runs), 1)

    @property
    def over_seeds(self) -> Interval:
        return over_seeds(self.values)

    @cached_property
    def sums(self) -> Sums:
        """By prompt, all seeds' together."""
        return _added([run.sums(self.by_goodput, self.sequences) for run in self.runs])

    @property
    def prompts(self) -> int:
        return prompts_of(self.sums)

    @property
    def over_prompts(self) -> Interval:
        """Prompts resampled; all that one brought in all seeds stays together."""
        return interval(self.value, self.draws, self.prompts)

    @cached_property
    def draws(self) -> np.ndarray:
        """The value in every resample of prompts: (resamples,)."""
        weights = resampled_prompts(len(self.sequences), self.resamples, self.draw)
        return resampled(self.sums, weights)

    @cached_property
    def log_draws(self) -> np.ndarray:
        """Its logarithm, NaN where it is 0: (resamples,)."""
        return np.log(self.draws, out=np.full(len(self.draws), nan), where=self.draws > 0)

    def mean(self, name: str) -> float | None:
        """Mean over seeds of a number of the runs; None where a run has none."""
        return _mean([getattr(run, name) for run in self.runs])

    def share(self, kind: str, window: bool = False) -> float:
        """Mean over seeds of the share of step time of this kind, in all or in the window."""
        return fmean((run.window_shares if window else run.shares)[kind] for run in self.runs)

    def level_ms(self, name: str) -> float | None:
        """Mean over seeds of the p99 of a latency."""
        return _mean([run.levels_ms[name] for run in self.runs])

    def in_domains(self, domain_of: np.ndarray, names: Sequence[str]) -> list[InDomain]:
        """The domains that were served; `domain_of` (P,): index of each sequence's domain."""
        found, at = [], self.sequences
        speed = _added([run.placed(at, run.tokens, run.inside_s) for run in self.runs])
        share = _added([run.placed(at, run.good, run.asked) for run in self.runs])
        for index, name in enumerate(names):
            own = domain_of == index
            mine = Sums(speed.amount[own], speed.per[own])
            if mine.per.any():
                weights = resampled_prompts(int(own.sum()), self.resamples, seed=0)
                spread = interval(mine.value, resampled(mine, weights), prompts_of(mine))
                attained = Sums(share.amount[own], share.per[own]).value
                found.append(InDomain(name, prompts_of(mine), spread, attained))
        return found


@dataclass(frozen=True, slots=True)
class InDomain:
    """One domain's requests in the runs of a score, in the company of all others'."""

    domain: str
    prompts: int
    speed: Interval  # tokens per second of a request's own stay, over prompts
    attained: float  # share of its judged requests within every limit


def _mean(found: Sequence[float | None]) -> float | None:
    return None if None in found else fmean(found)


def _added(parts: Sequence[Sums]) -> Sums:
    return Sums(sum(part.amount for part in parts), sum(part.per for part in parts))


class Contest:
    """The runs of a plan: what must be played, and what it came to."""

    def __init__(self, plan: ContestPlan, store: Store) -> None:
        self.plan, self.store = plan, store
        self.played = 0
        self.refused: dict[str, str] = {}  # policy and setting to the reason
        self._keys: dict[tuple, str] = {}
        self._scores: dict[tuple, Score | str] = {}

    def play(self, pairs: Iterable[tuple[ContestCell, Entrant]]) -> None:
        """Bring the runs of these into the store."""
        found = {}
        for cell, entrant in pairs:
            for seed in cell.seeds:
                run = self.plan.run(cell, entrant, seed)
                key = self._keys[cell, entrant.key, seed] = run.key
                words = {
                    "policy": entrant.policy,
                    "setting": entrant.setting,
                    "profile": cell.deployment.profile,
                    "trace": cell.deployment.trace,
                    "split": cell.split,
                    "domain": cell.domain,
                    "concurrency": cell.concurrency,
                    "seed": seed,
                }
                found[key] = run, words
        self.played += play_all(found, self.store, self.plan.asked.workers)

    def score(self, cell: ContestCell, entrant: Entrant) -> Score | str:
        """What was played came to, or why the policy refused, which is noted."""
        place = cell, entrant.key
        if place not in self._scores:
            runs = [self.store[self._keys[cell, entrant.key, seed]] for seed in cell.seeds]
            refused = next((run for run in runs if isinstance(run, str)), None)
            self._scores[place] = refused or self._scored(cell, entrant, runs)
        found = self._scores[place]
        if isinstance(found, str):
            self.refused[f"{entrant.policy} {entrant.setting}"] = found
        return found

    def _scored(self, cell: ContestCell, entrant: Entrant, runs: Sequence[Result]) -> Score:
        """In a tournament domains are resampled independently, the mixture behind them."""
        plan, draw = self.plan, 0
        if plan.candidate is not None:
            domains = cell.deployment.recording.domains
            draw = domains.index(cell.domain) if cell.domain in domains else len(domains)
        by_goodput = plan.limits is not None
        resamples = plan.asked.resamples
        return Score(entrant, tuple(runs), cell.sequences, by_goodput, resamples, draw)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A score over the best one, paired: over prompts and over seeds."""

    over_prompts: Interval
    over_seeds: Interval

    @property
    def same(self) -> bool:
        """Whether they cannot be told apart: over prompts, over seeds, or by lack of either."""
        return any(
            one.low is None or one.high is None or one.low <= 1 <= one.high
            for one in (self.over_prompts, self.over_seeds)
        )


def against(score: Score, best: Score) -> Ratio:
    """The ratio of means: the same prompts resampled together, the same seeds paired.

    Over seeds by Student's t on the differences of each, over the best one's mean.
    """
    if best.value <= 0:
        nothing = Interval(nan, None, None)
        return Ratio(nothing, nothing)
    value, other = score.value / best.value, best.draws
    draws = np.divide(score.draws, other, out=np.full(len(other), nan), where=other > 0)
    prompts = interval(value, draws, prompts_of(score.sums, best.sums))
    apart = over_seeds([a - b for a, b in zip(score.values, best.values, strict=True)])
    if apart.low is None:
        return Ratio(prompts, Interval(value, None, None))
    low, high = (1 + end / best.value for end in (apart.low, apart.high))
    return Ratio(prompts, Interval(value, low, high))


def geometric(pairs: Sequence[tuple[Score, Score]]) -> Interval:
    """Geometric mean of ours over theirs; every load of a domain sees the same resample."""
    value = np.exp(np.mean([np.log(a.pooled / b.pooled) for a, b in pairs]))
    draws = np.mean([a.log_draws - b.log_draws for a, b in pairs], axis=0)
    by_domain = {ours.draw: ours.prompts for ours, _ in pairs}
    return interval(float(value), np.exp(draws), sum(by_domain.values()))
