"""Comparisons that claims are judged by: rounds alone, by replay, and throughput, by simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.orders.replay import replay
from simulator.orders.specs import BestFirstOrder, Order
from simulator.orders.table import OrderTable
from simulator.studies.claims.claims import BATCHED, THETAS, Bench, Comparison, Side, Where
from simulator.studies.options import one_theta, policy_node
from simulator.studies.runs import Result
from simulator.studies.settings import MOST_CLIENTS
from traces.common.intervals import Sums, log_ratios, prompts_of, resampled

# ---------------- What a budget of nodes commits, whatever it costs.


BUDGETS = (7, 15, 31, 63, 127)
GRID = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.3, 0.5)
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
    for theta in GRID:
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


# ---------------- Two policies that serve the same texts at the same load.


Node = Mapping[str, Any]
JUMPS = ("blackwell_qwen3_8b", "b300", "h100_sxm_qwen3_8b_table6")  # one node more can cost a lot
SHARED = (4, 8)  # nodes per request
MOST = MOST_CLIENTS + 1
ALONE, TOGETHER, ANY_LOAD = range(1, 2), range(2, MOST), range(1, MOST)
CROWDED = range(64, MOST)  # where trees are said to lose
UNIFORM = "simulator.studies.claims.arms.Uniform"
STAIRCASE = "simulator.studies.claims.arms.Staircase"


@dataclass(frozen=True, slots=True)
class Part:
    """What a claim compares: on its own profiles (unless others are asked for), at some loads."""

    claim: str
    profiles: tuple[str, ...]
    loads: range  # requests in flight
    ours: Node  # the favoured side
    other: Node | None  # None: the fixed width that is nearest to `theta`
    setting: str = ""
    theta: float | None = None

    def sides(self, bench: Bench) -> tuple[Node, Node]:
        if self.other is not None:
            return self.ours, self.other
        width = nearest_width(bench, bench.threshold_order, self.theta)
        return self.ours, uniform(self.ours, width)


def uniform(of: Node, nodes: int) -> dict[str, Any]:
    """The same width for everyone in the order of `of`."""
    inner = {key: value for key, value in of.items() if key != "name"}
    return {"_target_": UNIFORM, "policy": inner, "nodes": nodes}


def matches(bench: Bench) -> Iterator[tuple[Where, int, Part]]:
    """Everything that is to be played on a recording: the row, the concurrency, and who."""
    for part in parts(bench.recording.temperature > 0):
        for profile in bench.plan.asked.profiles or part.profiles:
            where = Where(part.claim, bench.name, profile, part.setting)
            for concurrency in bench.plan.asked.concurrency:
                if concurrency in part.loads:
                    yield where, concurrency, part


def parts(sampled: bool) -> Iterator[Part]:
    """Claims 2b to 7."""
    for theta in THETAS:
        name = f"theta {theta:g}"
        yield Part("2b", BATCHED, ANY_LOAD, one_theta(theta), None, name, theta)
    line, measured = policy_node("cast"), policy_node("cast", width="measured")
    yield Part("3a", JUMPS, ALONE, measured, line)
    # A lone request's local weight cancels, so local prices are told apart in batches only.
    common, ratio, local = (
        policy_node("priced_survival", price=price) for price in ("lambda", "ratio", "local")
    )
    convex = policy_node("caddtree")
    stairs = {**convex, "_target_": STAIRCASE, "name": "staircase"}
    yield Part("3b", JUMPS, ALONE, stairs, convex, "CaDDTree's order")
    yield Part("3b", JUMPS, ALONE, ratio, convex, "priced survival, its order")
    first, anywhere = policy_node("dspark"), policy_node("adaptive_verification")
    yield Part("3c", BATCHED, TOGETHER, anywhere, first)
    yield Part("4a", BATCHED, ANY_LOAD, common, ratio)
    yield Part("4b", BATCHED, TOGETHER, local, ratio)
    yield Part("4c", BATCHED, TOGETHER, local, common)
    for nodes in SHARED:  # CAST shares nothing with a lone request
        shared = policy_node("cast", nodes_per_request=nodes)
        yield Part("5", BATCHED, TOGETHER, shared, uniform(shared, nodes), f"{nodes} nodes")
    chain, tree = policy_node("tuned_chain"), policy_node("fixed_tree")
    yield Part("6a", BATCHED, ALONE, tree, chain)
    yield Part("6b", BATCHED, CROWDED, chain, tree)
    if sampled:
        for claim, name in (("7a", "treespark"), ("7b", "priced_survival")):
            fixed, drawn = (policy_node(name, draws=draws) for draws in ("fixed", "sampled"))
            yield Part(claim, BATCHED, ANY_LOAD, fixed, drawn)


def compared(
    bench: Bench,
    where: Where,
    concurrency: int,
    nodes: Sequence[Node],
    results: Sequence[Result | str],
) -> Comparison | str:
    """Both sides, played; why one of them refuses, where it does."""
    for node, result in zip(nodes, results, strict=True):
        if isinstance(result, str):
            return f"{node.get('name') or node['_target_']}: {result}"
    sums = [result.sums(False, bench.sequences) for result in results]
    ours, other = (Side(result.output_throughput, result.nodes) for result in results)
    return Comparison(
        where=where,
        at=str(concurrency),
        unit="tokens per second",
        ours=ours,
        other=other,
        log_draws=log_ratios(*sums, bench.weights),
        prompts=prompts_of(*sums),
        beyond_table=any(one.window_shares["modelled"] > 0 for one in results),
    )
