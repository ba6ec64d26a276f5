"""Sequoia (arXiv 2402.12374): the static tree of most tokens per second on this hardware."""

from __future__ import annotations

import numpy as np

from simulator.orders.realised_ranks import realised_ranks
from simulator.orders.shaped import ShapeOrder
from simulator.params import fitting_anchors, node_count, whole
from simulator.policy import Lab, Load, Policy, Step
from simulator.rules import FixedWidth
from simulator.tree_dp import best_trees


class Sequoia(Policy):
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
            step_s = [self._step_s(batch, packed) for packed in range(2, self.nodes + 2)]
            rate = tokens / np.array(step_s)  # one pass drafts every layer, so depth costs nothing
            packed = int(rate.max(axis=0).argmax())
            self._chosen[batch] = packed + 2, int(rate[:, packed].argmax())
        return self._chosen[batch]

    def _step_s(self, batch: int, packed: int) -> float:
        every, context = np.full(batch, packed), np.full(batch, self._context)
        ordered = batch * (packed - 1)
        return self._cost.step(every, context, drafted=True, tree=True, ordered=ordered).total_s

    def plan(self, load: Load) -> ShapeOrder:
        return self._tree_at(load.batch)

    def _tree_at(self, batch: int) -> ShapeOrder:
        size = self.size_at(batch)
        if size not in self._orders:
            self._orders[size] = ShapeOrder(*self._trees.tree(*size))
        return self._orders[size]

    def allocate(self, step: Step) -> np.ndarray:
        return step.draft.size  # (batch,)

    def rule(self, batch: int) -> FixedWidth:
        return FixedWidth(self._tree_at(batch))

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
