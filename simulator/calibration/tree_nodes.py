"""The nodes of many trees as arrays: what calibration is fitted on and measured with.

Two populations. Edges: the children of accepted nodes and of the anchor, label "child accepted";
a product of well fitted edges is a survival (TreeSpark, arXiv 2609.22098). Paths: every node of
the tree, label "node accepted"; what a policy sums to expect acceptance, nothing conditioned on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.orders.table import OrderTable


@dataclass(frozen=True, slots=True, eq=False)
class TreeNodes:
    """n trees of M slots each; arrays (n, M)."""

    edge: np.ndarray  # float64 the node's probability given its parent, as the order scores it
    depth: np.ndarray  # 1-based, 0 in unused slots
    parent: np.ndarray  # int64 slot, -1 = the anchor
    exists: np.ndarray  # bool, False in unused slots
    accepted: np.ndarray  # bool

    @property
    def counted(self) -> np.ndarray:
        """Children of accepted nodes and of the anchor, the edge population: bool (n, M)."""
        above = np.take_along_axis(self.accepted, np.maximum(self.parent, 0), axis=1)
        return self.exists & ((self.parent < 0) | above)

    @property
    def rank(self) -> np.ndarray:
        """1 + siblings that come earlier, which are the likelier ones: int64 (n, M)."""
        rows, slots = self.parent.shape
        order = np.argsort(self.parent, axis=1, kind="stable")  # siblings side by side
        sorted_parent = np.take_along_axis(self.parent, order, axis=1)
        starts = np.ones((rows, slots), bool)
        starts[:, 1:] = sorted_parent[:, 1:] != sorted_parent[:, :-1]
        place = np.arange(slots)
        group = np.maximum.accumulate(np.where(starts, place, 0), axis=1)
        rank = np.empty((rows, slots), np.int64)
        np.put_along_axis(rank, order, place - group + 1, axis=1)
        return rank

    def product(self, edge: np.ndarray) -> np.ndarray:
        """Product of `edge` (n, M) along the path to every node: (n, M)."""
        path = np.array(edge, np.float64)
        rows = np.arange(len(path))
        for slot in range(path.shape[1]):  # parents come first
            parent = self.parent[:, slot]
            path[:, slot] *= np.where(parent < 0, 1.0, path[rows, np.maximum(parent, 0)])
        return path


def tree_nodes(table: OrderTable, anchors: np.ndarray) -> TreeNodes:
    """The trees of `anchors` (n,)."""
    anchors = np.asarray(anchors)
    score, parent = table.score[anchors], table.parent[anchors].astype(np.int64)
    exists = np.arange(score.shape[1]) < table.size[anchors, None]
    above = np.where(parent < 0, 0.0, np.take_along_axis(score, np.maximum(parent, 0), axis=1))
    edge = np.exp(np.where(exists, score, 0.0) - np.where(exists, above, 0.0))
    accepted = _accepted(table.hit_rank[anchors], score.shape[1])
    return TreeNodes(edge, table.depth[anchors], parent, exists, accepted)


def _accepted(hit_rank: np.ndarray, nodes: int) -> np.ndarray:
    """Nodes on the realised path: bool (n, nodes) of hit_rank (n, D)."""
    row, depth = np.nonzero(hit_rank <= nodes)
    accepted = np.zeros((len(hit_rank), nodes), dtype=bool)
    accepted[row, hit_rank[row, depth].astype(np.int64) - 1] = True
    return accepted
