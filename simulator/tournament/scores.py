"""Results by where and by whom: the simulations a tournament needs, and their pooled scores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from simulator.inputs import choose_sequences
from simulator.tournament.plan import Deployment, Plan
from simulator.tournament.play import Match, Result
from simulator.tournament.rivals import Entrant
from simulator.tournament.store import Store
from traces.bootstrap import Sums, prompts_of, resampled, resampled_prompts


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
