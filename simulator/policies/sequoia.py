"""Sequoia (arXiv 2402.12374): the static tree of most tokens per second on this hardware."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from simulator.calibration.lab import fitting_anchors
from simulator.orders.families.shaped import ShapeOrder, realised_ranks
from simulator.policies.checks import node_count, whole
from simulator.policies.shared.rules import FixedWidth, RulePolicy, even_step_s
from simulator.policy import Lab


class TreeTable(NamedTuple):
    """The programme's solution for trees of up to M nodes, the root included, and L layers."""

    tokens: np.ndarray  # (L + 1, M + 1) expected committed tokens, -inf where no tree exists
    children: np.ndarray  # (L + 1, M + 1) of the best root
    split: np.ndarray  # (L + 1, branch + 1, M + 1) nodes left beside the last child's subtree

    def tree(self, nodes: int, layers: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Parents (-1 = the root) and 0-based ranks of a best tree's nodes but the root.

        Breadth first, so parents come before children.
        """
        parents, ranks, waiting = [], [], deque([(nodes, layers, -1)])
        while waiting:
            left, depth, root = waiting.popleft()
            count = int(self.children[depth, left])
            sizes = []
            for child in range(count, 0, -1):
                rest = int(self.split[depth, child, left])
                sizes.append(left - rest)
                left = rest
            for rank, size in enumerate(reversed(sizes)):
                waiting.append((size, depth - 1, len(parents)))
                parents.append(root)
                ranks.append(rank)
        return tuple(parents), tuple(ranks)


def best_trees(chance: np.ndarray, nodes: int, layers: int) -> TreeTable:
    """Solve for all trees of up to `nodes` nodes, the root included, and `layers` layers below it.

    Args:
        chance: (branch,) p_b of the children by rank; more children than that no node has.
    """
    branch = len(chance)
    tokens = np.full((layers + 1, nodes + 1), -np.inf)
    children = np.zeros((layers + 1, nodes + 1), np.int64)
    split = np.zeros((layers + 1, branch + 1, nodes + 1), np.int64)
    tokens[0, 1] = 1.0
    for layer in range(1, layers + 1):
        gain = np.maximum(tokens[layer - 1], 0.0)  # a chance of 0 times -inf would be no number
        value = np.full((branch + 1, nodes + 1), -np.inf)  # by children of the root
        value[0, 1] = 1.0
        for b in range(1, branch + 1):
            below = np.where(tokens[layer - 1] > 0, chance[b - 1] * gain, -np.inf)
            for m in range(b + 1, nodes + 1):
                beside = value[b - 1, 1:m] + below[m - 1 : 0 : -1]  # y = 1..m - 1
                split[layer, b, m] = best = 1 + int(beside.argmax())
                value[b, m] = beside[best - 1]
        children[layer] = value.argmax(axis=0)
        tokens[layer] = value.max(axis=0)
    return TreeTable(tokens, children, split)


class Sequoia(RulePolicy):
    """One tree shape for each live batch size, verified whole.

    The chance that the b-th child is the accepted one is measured on the calibration split, over
    children of accepted parents at all depths; a dynamic programme turns it into the best tree of
    every size and depth, and the cheapest expected token at the live batch and the workload's
    typical context picks one. Sizes are found when a batch size first occurs.

    Args:
        nodes: most nodes, the root not counted. branch: most children of a node.
        max_depth: layers; null: every depth the recording has.
    """

    def __init__(self, nodes: int = 63, branch: int = 16, max_depth: int | None = None) -> None:
        self.nodes, self.branch = node_count("nodes", nodes), node_count("branch", branch)
        self.max_depth = None if max_depth is None else whole("max_depth", max_depth)

    def prepare(self, lab: Lab) -> None:
        self._cost, self._context, self._max_batch = lab.cost, lab.context, lab.max_batch
        ranks = realised_ranks(lab.recording, fitting_anchors(lab, "calibration"), self.branch)
        self.chance = acceptance_by_rank(ranks, self.branch)
        layers = min(self.max_depth or lab.recording.depths, lab.recording.depths)
        self._trees = best_trees(self.chance, self.nodes + 1, layers)
        self._chosen: dict[int, tuple[int, int]] = {}
        self._orders: dict[tuple[int, int], ShapeOrder] = {}

    def size_at(self, batch: int) -> tuple[int, int]:
        """(packed tokens, layers) of a live batch: the cheapest token, smaller among equals."""
        if batch not in self._chosen:
            tokens = self._trees.tokens[:, 2:]  # (layers + 1, nodes)
            step_s = [
                even_step_s(self._cost, batch, packed, self._context, ordered=batch * (packed - 1))
                for packed in range(2, self.nodes + 2)
            ]
            rate = tokens / np.array(step_s)  # one pass drafts every layer, so depth costs nothing
            packed = int(rate.max(axis=0).argmax())
            self._chosen[batch] = packed + 2, int(rate[:, packed].argmax())
        return self._chosen[batch]

    def rule(self, batch: int) -> FixedWidth:
        size = self.size_at(batch)
        if size not in self._orders:
            self._orders[size] = ShapeOrder(*self._trees.tree(*size))
        return FixedWidth(self._orders[size])

    def describe(self) -> dict:
        sizes = [1 << i for i in range(self._max_batch.bit_length())]
        chosen = {str(size): self.size_at(size) for size in sizes}
        return {
            "acceptance_by_rank": self.chance.tolist(),
            "nodes_by_batch": {size: packed - 1 for size, (packed, _) in chosen.items()},
            "depth_by_batch": {size: layers for size, (_, layers) in chosen.items()},
        }


def acceptance_by_rank(ranks: np.ndarray, branch: int) -> np.ndarray:
    """Share of accepted parents whose accepted child has each rank: (branch,).

    ranks: (n, D) as of `realised_ranks`. The anchor is accepted; a parent is where it and all
    before it are among the first `branch` children.
    """
    hit = (ranks < branch).cumprod(axis=1).astype(bool)  # (n, D)
    parents = len(ranks) + np.count_nonzero(hit[:, :-1])
    return np.bincount(ranks[hit], minlength=branch)[:branch] / parents
