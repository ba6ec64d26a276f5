"""What every shipped policy verifies, on explicit trees (`tests.reference`).

Policies with a rule of their own have it written out here, sharing no code with the simulator's
policies, calibration or selection. Those that verify whole trees, weigh costs, or remember what
happened decide themselves (their rules have tests of their own), but on explicit trees of their
orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from simulator.cost import StepCost
from simulator.orders.specs import Order
from simulator.policy import Draft, Load, Outcome, Policy, Step
from tests.reference import RawScores, Tree, best_first, by_push, calibrated, chain
from tests.reference_orders import as_arrays, drafted, evident_chain

# TreeSpark's published ladder at temperature 0.
LADDER = (
    {"max_batch": 4, "theta": 0.02},
    {"max_batch": 8, "theta": 0.05},
    {"max_batch": None, "theta": 0.15},
)

# ---------------------------------------------------------------- rules
# Each: (settings of its YAML, what it fitted, raw scores, anchors of the step) -> their trees.


def autoregressive(config, fit, raw: RawScores, anchors: Sequence[int]) -> list[Tree]:
    return [chain(raw, anchor, 0) for anchor in anchors]


def fixed_chain(config, fit, raw: RawScores, anchors: Sequence[int]) -> list[Tree]:
    return [chain(raw, anchor, config["length"]) for anchor in anchors]


def tuned_chain(config, fit, raw: RawScores, anchors: Sequence[int]) -> list[Tree]:
    """At the length it says it chose for a batch of this size."""
    length = fit["length_by_batch"][str(len(anchors))]
    return [chain(raw, anchor, length) for anchor in anchors]


def marginals(config, raw: RawScores) -> str:
    """CAST's and DDTree's lists: of a block drafter, along the greedy chain of the other kind."""
    by_itself = "marginal" if raw.pooled else "marginal_biased"
    return by_itself if config["scores"] == "auto_marginal" else config["scores"]


def cast(config, fit, raw: RawScores, anchors: Sequence[int]) -> list[Tree]:
    """Alone: the static width. In a batch: the best nodes of all requests share a budget.

    Ties of the shared budget: earlier request, then earlier node (arXiv 2610.00321, PER_REQUEST).
    """
    scores = marginals(config, raw)
    if len(anchors) == 1:
        return [best_first(raw, anchors[0], fit["width"], scores)]
    most, budget = config["max_nodes_per_request"], len(anchors) * config["nodes_per_request"]
    trees = [best_first(raw, anchor, most, scores) for anchor in anchors]
    pool = sorted((-n.score, r, n.place) for r, tree in enumerate(trees) for n in tree.nodes)
    kept = pool[:budget]
    width = [sum(request == r for _, request, _ in kept) for r in range(len(trees))]
    return [tree.first(w, cut=-kept[-1][0]) for tree, w in zip(trees, width, strict=True)]


def cast_width(config, raw: RawScores, anchors: Sequence[int], packed, ms) -> int:
    """CAST's static width from the trees of `anchors` and a batch-one latency probe.

    Nodes are added while the next one's mean mass is worth its share of the round; the width is
    the first deployed one that reaches the stop.
    """
    deployed = (15, 31, 47, 63, 95, 127)
    scores, masses = marginals(config, raw), np.zeros((len(anchors), deployed[-1]))
    for row, anchor in zip(masses, anchors):
        nodes = best_first(raw, anchor, deployed[-1], scores).nodes
        row[: len(nodes)] = [math.exp(node.score) for node in nodes]
    rho = masses.mean(axis=0)
    fitted = [(n, t) for n, t in zip(packed, ms) if 16 <= n <= 128]
    c1, c0 = np.polyfit(*zip(*fitted), deg=1)
    stop = 1
    while stop < len(rho):
        if rho[stop] < c1 * (1 + rho[:stop].sum()) / (c0 + c1 * (stop + 1)):
            break
        stop += 1
    return min((width for width in deployed if width >= stop), default=deployed[-1])


def treespark(config, fit, raw: RawScores, anchors: Sequence[int]) -> list[Tree]:
    """The rung of the live batch: a survival threshold, or the whole plain chain."""
    batch = len(anchors)
    ladder = config["ladder"] or LADDER
    rung = next(r for r in ladder if r["max_batch"] is None or batch <= r["max_batch"])
    if rung.get("arm") == "chain":
        return [chain(raw, anchor, raw.depths) for anchor in anchors]
    grow = {
        "nodes": config["nodes"],
        "branch": config["branch"],
        "key": by_push,
        "edge": lambda logq: calibrated(logq, fit["platt_a"], fit["platt_b"]),
        "least": math.log(rung["theta"]) if rung["theta"] else None,
    }
    return [best_first(raw, anchor, **grow) for anchor in anchors]


def batch_schedule(config, fit, raw: RawScores, anchors: Sequence[int]) -> list[Tree]:
    """The length of the range that the batch is in."""
    lengths = [k for low, high, k in config["table"] if low <= len(anchors) <= (high or math.inf)]
    return [chain(raw, anchor, *lengths) for anchor in anchors]


def dspark_threshold(config, fit, raw: RawScores, anchors: Sequence[int]) -> list[Tree]:
    """Cut before the first token whose own confidence is below the threshold."""
    trees = [evident_chain(raw, a, fit["evidence"], fit.get("margin_maps")) for a in anchors]
    least = math.log(config["threshold"])
    widths = []
    for tree in trees:
        low = (n.place for n in tree.nodes if n.score - n.parent.score < least)
        widths.append(next(low, len(tree.nodes)))
    return [tree.first(width) for tree, width in zip(trees, widths, strict=True)]


RULES = {
    "autoregressive": autoregressive,
    "fixed_chain": fixed_chain,
    "tuned_chain": tuned_chain,
    "cast": cast,
    "cast_measured": cast,
    "treespark": treespark,
    "treespark_chain_arm": treespark,
    "batch_schedule": batch_schedule,
    "dspark_threshold": dspark_threshold,
}


# ---------------------------------------------------------------- both kinds of policies


class Rule:
    """A policy whose rule stands above."""

    def __init__(self, name: str, config: Mapping[str, Any], fit: Mapping[str, Any], raw) -> None:
        self.rule, self.config, self.fit, self.raw = RULES[name], config, fit, raw

    def trees(self, load: Load, anchors: Sequence[int]) -> list[Tree]:
        """What a step over `anchors` verifies, in slot order."""
        return self.rule(self.config, self.fit, self.raw, [int(anchor) for anchor in anchors])

    def observe(self, outcome: Outcome) -> None:
        """A rule remembers nothing."""


class Scheduler:
    """A policy that decides itself, shown explicit trees of the orders that it asks for.

    Args:
        policy: fitted, of which nothing else makes use. resolve: an order with its defaults.
    """

    def __init__(
        self, policy: Policy, raw: RawScores, cost: StepCost, resolve: Callable[[Order], Order]
    ) -> None:
        self.policy, self.raw, self.cost, self.resolve = policy, raw, cost, resolve

    def trees(self, load: Load, anchors: Sequence[int]) -> list[Tree]:
        order = self.policy.plan(load)
        if order is None:
            return [chain(self.raw, int(anchor), 0) for anchor in anchors]
        order = self.resolve(order)
        trees = [drafted(order, self.raw, int(anchor)) for anchor in anchors]
        draft = Draft(**as_arrays(trees, nodes_of(order, trees)))
        widths = self.policy.allocate(Step(load, draft, order, self.cost)).tolist()
        cut = min((t.nodes[w - 1].score for t, w in zip(trees, widths) if w), default=None)
        return [tree.first(width, cut) for tree, width in zip(trees, widths, strict=True)]

    def observe(self, outcome: Outcome) -> None:
        self.policy.observe(outcome)


def nodes_of(order: Order, trees: Sequence[Tree]) -> int:
    """Most nodes of a resolved order: what it says, or has here where all trees are alike."""
    for name in ("nodes", "parents", "maps"):
        if hasattr(order, name):
            value = getattr(order, name)
            return value if isinstance(value, int) else len(value)
    return max(len(tree.nodes) for tree in trees)
