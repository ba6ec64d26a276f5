"""The best children of many nodes at once, for orders that are grown list by list or by layers."""

from __future__ import annotations

import numpy as np

from simulator.orders.kernels import best_first as kernel
from simulator.orders.scores import BlockScores
from traces.common.errors import InputError

SLACK = 1e-9  # more than rounding of a log probability


class Children:
    """Children of the nodes of n blocks, the best `branch` of each.

    scores: "parent" (given the node's own token), "marginal" (no bias), "marginal_biased" (given
    the greedy chain's token); pools know one kind only. Raises InputError for a pool that rises.
    """

    def __init__(self, block: BlockScores, scores: str, branch: int) -> None:
        self._scores, self._branch, self._pooled = scores, branch, block.pooled
        self.size, self.depths = block.shape[:2]
        if block.pooled:
            self._token = np.asarray(block.pool_token[..., :branch], np.int64)
            logq = np.asarray(block.pool_logprob[..., :branch], np.float64)
            self._logq = np.minimum(logq, 0.0)  # (n, D, branch)
            if (logq[..., 1:] > logq[..., :-1]).any():
                raise InputError("BlockScores pool_logprob: rises along a row, accepted: falling")
            self.anchor_token = np.full(self.size, kernel.NO_PARENT)
            return
        self._head = block.head
        self.anchor_token = np.array(block.anchor_token, np.int64)  # (n,)
        no_pool = (np.empty((0, 0, 0), np.int64), np.empty((0, 0, 0)))
        self._laws = kernel.Scores(*no_pool, *block.full_logits(), self.anchor_token)
        self._chain: list[np.ndarray] = [self.anchor_token]  # greedy tokens, (n,) per depth

    def of(self, depth: int, rows: np.ndarray, parents: np.ndarray, floor=None):
        """Children at 0-based `depth` of m nodes: (m, branch) tokens int64 and log q, falling.

        rows: (m,) the nodes' blocks, ascending. parents: (m,) the nodes' tokens. Children that
        do not exist are -1 at -inf; those whose log q is below floor (m,), rising within a block,
        may be left out likewise.
        """
        if self._pooled:
            return self._token[rows, depth], self._logq[rows, depth]
        given = np.asarray(parents, np.int64)
        if self._scores == "marginal":
            given = np.full(len(rows), kernel.NO_PARENT)
        elif self._scores == "marginal_biased":
            given = self._greedy(depth)[rows]
        return self._find(depth, rows, given, self._branch, floor)

    def lists(self) -> tuple[np.ndarray, np.ndarray]:
        """Marginal lists of every depth: (n, D, branch) tokens int64 and log q, falling."""
        if self._pooled:
            return self._token, self._logq
        rows = np.arange(self.size)
        found = []
        for depth in range(self.depths):
            found.append(self.of(depth, rows, self.anchor_token))
            if len(self._chain) == depth + 1:
                self._chain.append(found[-1][0][:, 0])
        return tuple(np.stack(part, axis=1) for part in zip(*found, strict=True))

    def _greedy(self, depth: int) -> np.ndarray:
        """Token of the greedy chain above 0-based `depth`: (n,)."""
        while len(self._chain) <= depth:
            last = len(self._chain) - 1
            token, _ = self._find(last, np.arange(self.size), self._chain[last], 1)
            self._chain.append(token[:, 0])
        return self._chain[depth]

    def _find(self, depth, rows, given, branch, floor=None):
        token, logq = np.full((len(rows), branch), -1), np.full((len(rows), branch), -np.inf)
        floor = np.full(len(rows), -np.inf) if floor is None else floor - SLACK
        kept, key = self._head.work, ("children", self.depths, branch)
        if key not in kept:
            kept[key] = kernel.work_space(self._head.vocab_size, self.depths, 1, branch)
        head = self._head.kept()
        kernel.best_children(self._laws, head, kept[key], rows, depth, given, floor, token, logq)
        return token, logq


def best(score: np.ndarray, first: np.ndarray, top: int) -> np.ndarray:
    """Indices of the best of every group, equal scores by index: (groups, top), -1 = none.

    score (m,); group g is score[first[g] : first[g + 1]], -inf does not count.
    """
    group = np.repeat(np.arange(len(first) - 1), np.diff(first))
    order = np.lexsort((-score, group))  # stable: by index among equals
    rank = np.arange(len(score)) - first[group]
    kept = (rank < top) & (score[order] > -np.inf)
    place = np.full((len(first) - 1, top), -1)
    place[group[kept], rank[kept]] = order[kept]
    return place
