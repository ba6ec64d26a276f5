"""Claims about rounds alone: what a budget of nodes commits, whatever it costs (by replay)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from simulator.orders.replay import replay
from simulator.orders.specs import BestFirstOrder, Order
from simulator.orders.table import OrderTable
from simulator.studies.claims.claims import Bench, Comparison, Side, Where
from traces.common.intervals import Sums, log_ratios, prompts_of, resampled

BUDGETS = (7, 15, 31, 63, 127)
THETAS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.3, 0.5)
UNIT = "tokens per round"  # R: accepted + 1, not clipped at a text's end


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """Per sequence: R as a sum over rounds, and nodes verified as one."""

    committed: Sums
    nodes: Sums


def replayed(bench: Bench, table: OrderTable, sequences: np.ndarray, width) -> Replayed:
    """`sequences` at a width, one or by anchor (A,)."""
    run = replay(table, bench.recording, sequences, width)
    asked = np.minimum(table.size, width)[run.anchors]
    owner = np.repeat(np.arange(len(sequences)), run.rounds)
    rounds = run.rounds.astype(float)
    nodes = np.bincount(owner, asked, len(sequences))
    return Replayed(Sums(rounds + run.accepted, rounds), Sums(nodes, rounds))


def parent_against_marginal(bench: Bench) -> Iterator[Comparison]:
    """Claim 1, for drafters whose law depends on the parent."""
    if bench.recording.encoding != "hidden" or "markov_w1" not in bench.recording.arrays:
        return
    rules = ("parent", "marginal", "marginal_biased")
    tables = {r: bench.table(BestFirstOrder(scores=r, nodes=BUDGETS[-1])) for r in rules}
    names = {"marginal": "marginal", "marginal_biased": "marginal, greedy chain's bias"}
    for rule, name in names.items():
        for budget in BUDGETS:
            ours, other = (
                replayed(bench, tables[r], bench.sequences, min(budget, tables[r].max_nodes))
                for r in ("parent", rule)
            )
            yield Comparison(
                where=Where("1", bench.name, setting=f"parent / {name}"),
                at=str(budget),
                unit=UNIT,
                ours=Side(ours.committed.value, ours.nodes.value),
                other=Side(other.committed.value, other.nodes.value),
                log_draws=log_ratios(ours.committed, other.committed, bench.weights),
                prompts=prompts_of(ours.committed, other.committed),
            )


def threshold_width(table: OrderTable, theta: float) -> np.ndarray:
    """TreeSpark's admission at one theta: (A,) nodes."""
    return (table.score >= np.log(theta)).sum(axis=1)


def threshold_against_fixed(bench: Bench, order: Order) -> Iterator[Comparison]:
    """Claim 2a: at every theta, against a fixed budget of exactly as many nodes per round.

    Between two whole widths the fixed budget's R is the straight line: some rounds take one node
    more. In every resample both nodes and R are that resample's own.
    """
    table = bench.table(_whole(order))
    grid = [replayed(bench, table, bench.sequences, w) for w in range(table.max_nodes + 1)]
    nodes, rates = (
        np.array([resampled(getattr(one, name), bench.weights) for one in grid])
        for name in ("nodes", "committed")
    )  # (widths, resamples)
    for theta in THETAS:
        ours = replayed(bench, table, bench.sequences, threshold_width(table, theta))
        mean = ours.nodes.value
        line = ([one.nodes.value for one in grid], [one.committed.value for one in grid])
        asked = resampled(ours.nodes, bench.weights)
        fixed = [np.interp(*one) for one in zip(asked, nodes.T, rates.T, strict=True)]
        yield Comparison(
            where=Where("2a", bench.name),
            at=f"{theta:g}",
            unit=UNIT,
            ours=Side(ours.committed.value, mean),
            other=Side(float(np.interp(mean, *line)), mean),
            log_draws=np.log(resampled(ours.committed, bench.weights) / fixed),
            prompts=prompts_of(ours.committed),
        )


def _whole(order: Order) -> Order:
    """Without a threshold of its own."""
    return replace(order, floor=None) if isinstance(order, BestFirstOrder) else order


def nearest_width(bench: Bench, order: Order, theta: float) -> int:
    """The fixed width nearest to theta's mean nodes per round on the tuning split, at least 1."""
    table = bench.table(_whole(order))
    sequences = bench.recording.sequences_of("tuning")
    spent = replayed(bench, table, sequences, threshold_width(table, theta))
    return max(1, round(spent.nodes.value))
