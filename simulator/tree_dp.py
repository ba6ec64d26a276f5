"""Sequoia's dynamic programme (arXiv 2402.12374): the static tree of most expected tokens.

Acceptance is taken to depend on a child's rank alone: p_b is the chance that the b-th child is the
accepted one, given that its parent was. With m nodes, the root among them, and l layers below it,
T(m, l, b) of a root of b children is

    T(1, l, 0) = 1,    T(m, l, b) = max over y of T(y, l, b - 1) + p_b max_c T(m - y, l - 1, c).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np


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
