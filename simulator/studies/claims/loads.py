"""Claims about throughput: two policies that serve the same texts at the same load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.orders.specs import Order
from simulator.studies.claims.claims import Bench
from simulator.studies.claims.rounds import nearest_width
from simulator.studies.claims.verdict import Comparison, Side, Where
from simulator.studies.options import policy_node
from simulator.studies.runs import Result
from simulator.studies.settings import MOST_CLIENTS
from traces.common.intervals import log_ratios, prompts_of

Node = Mapping[str, Any]
BATCHED = ("b300", "mi355x")  # tables measured in batches
JUMPS = ("blackwell_qwen3_8b", "b300", "h100_sxm_qwen3_8b_table6")  # one node more can cost a lot
THETAS = (0.02, 0.05, 0.15)  # TreeSpark's published ones
SHARED = (4, 8)  # nodes per request
MOST = MOST_CLIENTS + 1
ALONE, TOGETHER, ANY_LOAD = range(1, 2), range(2, MOST), range(1, MOST)
CROWDED = range(64, MOST)  # where trees are said to lose
UNIFORM = "simulator.studies.claims.arms.Uniform"
STAIRCASE = "simulator.studies.claims.arms.Staircase"


@dataclass(frozen=True, slots=True)
class Match:
    """One comparison to be played."""

    where: Where
    concurrency: int
    sides: Callable[[], tuple[Node, Node]]  # favoured, other


@dataclass(frozen=True, slots=True)
class Part:
    """What a claim compares: on its own profiles (unless others are asked for), at some loads."""

    claim: str
    setting: str
    profiles: tuple[str, ...]
    loads: range  # requests in flight
    sides: Callable[[], tuple[Node, Node]]


def uniform(of: Node, nodes: int) -> dict[str, Any]:
    """The same width for everyone in the order of `of`."""
    inner = {key: value for key, value in of.items() if key != "name"}
    return {"_target_": UNIFORM, "policy": inner, "nodes": nodes}


def matches(bench: Bench) -> Iterator[Match]:
    """Everything that is to be played on a recording."""
    for part in parts(bench):
        for profile in bench.plan.asked.profiles or part.profiles:
            where = Where(part.claim, bench.name, profile, part.setting)
            for concurrency in bench.plan.asked.concurrency:
                if concurrency in part.loads:
                    yield Match(where, concurrency, part.sides)


def parts(bench: Bench) -> Iterator[Part]:
    """Claims 2b to 7."""
    yield from _thresholds(bench)
    yield from _rules()
    yield from _prices()
    yield from _budgets()
    chain, tree = policy_node("tuned_chain"), policy_node("fixed_tree")
    yield Part("6a", "", BATCHED, ALONE, lambda: (tree, chain))
    yield Part("6b", "", BATCHED, CROWDED, lambda: (chain, tree))
    if bench.recording.temperature > 0:
        yield from _draws()


def _thresholds(bench: Bench) -> Iterator[Part]:
    for theta in THETAS:
        node = one_theta(theta)

        def sides(node: Node = node, theta: float = theta) -> tuple[Node, Node]:
            return node, uniform(node, nearest_width(bench, threshold_order(bench), theta))

        yield Part("2b", f"theta {theta:g}", BATCHED, ANY_LOAD, sides)


def one_theta(theta: float) -> dict[str, Any]:
    """TreeSpark with the same threshold at every load."""
    return policy_node("treespark", ladder=[{"max_batch": None, "theta": theta}])


def threshold_order(bench: Bench) -> Order:
    """TreeSpark's order, the same for every theta and every profile."""
    return bench.fitted(one_theta(THETAS[0]), BATCHED[0]).order


def _rules() -> Iterator[Part]:
    line, measured = policy_node("cast"), policy_node("cast", width="measured")
    yield Part("3a", "", JUMPS, ALONE, lambda: (measured, line))
    convex, ratio = policy_node("caddtree"), policy_node("priced_survival", price="ratio")
    stairs = {**convex, "_target_": STAIRCASE, "name": "staircase"}
    yield Part("3b", "CaDDTree's order", JUMPS, ALONE, lambda: (stairs, convex))
    yield Part("3b", "priced survival, its order", JUMPS, ALONE, lambda: (ratio, convex))
    first, anywhere = policy_node("dspark"), policy_node("adaptive_verification")
    yield Part("3c", "", BATCHED, TOGETHER, lambda: (anywhere, first))


def _prices() -> Iterator[Part]:
    """A lone request's local weight cancels, so local prices are told apart in batches only."""
    common, ratio, local = (
        policy_node("priced_survival", price=price) for price in ("lambda", "ratio", "local")
    )
    yield Part("4a", "", BATCHED, ANY_LOAD, lambda: (common, ratio))
    yield Part("4b", "", BATCHED, TOGETHER, lambda: (local, ratio))
    yield Part("4c", "", BATCHED, TOGETHER, lambda: (local, common))


def _budgets() -> Iterator[Part]:
    """CAST shares nothing with a lone request."""
    for nodes in SHARED:
        shared = policy_node("cast", nodes_per_request=nodes)
        same = uniform(shared, nodes)
        sides = (shared, same)
        yield Part("5", f"{nodes} nodes", BATCHED, TOGETHER, lambda sides=sides: sides)


def _draws() -> Iterator[Part]:
    for claim, name in (("7a", "treespark"), ("7b", "priced_survival")):
        sides = tuple(policy_node(name, draws=draws) for draws in ("fixed", "sampled"))
        yield Part(claim, "", BATCHED, ANY_LOAD, lambda sides=sides: sides)


def compared(
    bench: Bench, match: Match, nodes: tuple[Node, Node], results: Sequence[Result | str]
) -> Comparison | str:
    """Both sides, played; why one of them refuses, where it does."""
    for node, result in zip(nodes, results, strict=True):
        if isinstance(result, str):
            return f"{node.get('name') or node['_target_']}: {result}"
    ours, other = results
    sums = bench.sums(ours), bench.sums(other)
    return Comparison(
        where=match.where,
        at=str(match.concurrency),
        unit="tokens per second",
        ours=_side(ours),
        other=_side(other),
        log_draws=log_ratios(*sums, bench.weights),
        prompts=prompts_of(*sums),
        beyond_table=any(one.window_shares["modelled"] > 0 for one in results),
    )


def _side(result: Result) -> Side:
    return Side(result.output_throughput, result.nodes)
