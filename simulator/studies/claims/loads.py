"""Claims about throughput: two policies that serve the same texts at the same load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.studies.claims.claims import BATCHED, THETAS, Bench, Comparison, Side, Where
from simulator.studies.claims.rounds import nearest_width
from simulator.studies.options import one_theta, policy_node
from simulator.studies.runs import Result
from simulator.studies.settings import MOST_CLIENTS
from traces.common.intervals import log_ratios, prompts_of

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
