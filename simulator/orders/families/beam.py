"""Trees grown layer by layer: EAGLE-2, PCTree, OPT-Tree."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.orders.families.blockwise import BlockwiseOrder, Grown
from simulator.orders.scores import BlockScores
from simulator.orders.specs import (
    COUNT,
    SCORES,
    Kind,
    check,
    finite,
    limited_depth,
    limited_scores,
    one_of,
)

GAIN = Kind("a number of at least 0", lambda value: finite(value, low=0))


@dataclass(frozen=True, slots=True)
class BeamOrder(BlockwiseOrder):
    """Every node of a frontier gets `branch` children, the best `beam` of them are the next one.

    All children go to a pool, and the order is the pool by falling joint log-probability, equal
    scores by depth, then by their place in the pool: its first `nodes` (the root does not count).
    A recorded pool with fewer ranks than `branch` caps it. min_gain: OPT-Tree's delta (arXiv
    2406.17276): with E the sum of the pool's best `beam` path probabilities, a layer that raises E
    by no more is the last. scores as in BestFirstOrder.
    """

    branch: int
    beam: int
    nodes: int
    scores: str = "auto"
    depth_cap: int | None = None
    min_gain: float | None = None

    def __post_init__(self) -> None:
        check(self, branch=COUNT, beam=COUNT, nodes=COUNT)
        check(self, scores=one_of(SCORES), depth_cap=COUNT, min_gain=GAIN)

    def limited(self, depths: int, ranks: int, conditioned: bool, source: str) -> BeamOrder:
        cap = limited_depth(self, depths, source)
        branch = min(self.branch, ranks)
        pool, frontier = 0, 1
        for _ in range(cap):
            pool, frontier = pool + frontier * branch, min(self.beam, frontier * branch)
        return replace(
            self,
            branch=branch,
            nodes=min(self.nodes, pool),
            scores=limited_scores(self.scores, conditioned),
            depth_cap=cap,
        )

    def grow(self, block: BlockScores) -> Grown:
        """Only the best max(nodes, beam) of a layer can matter to order, E or frontier."""
        from simulator.orders.kernels.children import Children, best

        children = Children(block, self.scores, self.branch)
        n, keep = children.size, max(self.nodes, self.beam)
        rows, slots = np.arange(n), np.full(n, -1)  # of the frontier: block, place in the layer
        tokens, scores = children.anchor_token, np.zeros(n)
        layers, expected, least = [], np.zeros(n), np.full(n, -np.inf)
        for depth in range(self.depth_cap):
            floor = least[rows] - scores  # what cannot come to be among the pool's best
            token, logq = children.of(depth, rows, tokens, floor)  # (frontier, branch)
            flat = (scores[:, None] + logq).ravel()
            first = np.searchsorted(rows, np.arange(n + 1)) * self.branch
            place = best(flat, first, keep)  # (n, keep)
            flat = np.append(flat, -np.inf)  # what place -1 reads
            parent = np.append(slots, -1)[place // self.branch]
            layers.append((flat[place], parent, np.append(token, -1)[place]))
            pool = np.concatenate([layer[0] for layer in layers], axis=1)
            top = -np.partition(-pool, keep - 1, axis=1)[:, :keep]
            least = top.min(axis=1)
            grows = layers[-1][0][:, : self.beam] > least[:, None]
            if self.min_gain is not None:
                before = expected
                expected = np.exp(-np.sort(-top, axis=1)[:, : self.beam]).sum(axis=1)
                grows &= (expected - before > self.min_gain)[:, None]
            rows, slots = np.nonzero(grows)
            tokens, scores = layers[-1][2][rows, slots], layers[-1][0][rows, slots]
            if not len(rows):
                break
        return _ordered(layers, keep, self.nodes)


def _ordered(layers, keep: int, nodes: int) -> Grown:
    """The pool by falling score, equals by depth, then place."""
    score, parent, token = (np.concatenate(part, axis=1) for part in zip(*layers, strict=True))
    depth = np.repeat(np.arange(1, len(layers) + 1), keep)  # (pool,)
    above = np.where(parent >= 0, parent + (depth - 2) * keep, -1)  # place of the parent
    order = np.argsort(-score, axis=1, kind="stable")  # (n, pool)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(order.shape[1])[None], axis=1)
    order = order[:, :nodes]
    above = np.take_along_axis(above, order, axis=1)
    parent = np.where(above >= 0, np.take_along_axis(rank, np.maximum(above, 0), axis=1), -1)
    score, token = (np.take_along_axis(part, order, axis=1) for part in (score, token))
    grown = Grown(score, depth[order], parent, token)
    missing = max(nodes - score.shape[1], 0)  # where every block stopped early
    fill = (-np.inf, 0, 0, 0)
    parts = zip(grown, fill, strict=True)
    return Grown(*(np.pad(one, ((0, 0), (0, missing)), constant_values=by) for one, by in parts))
