"""All maps of one recording, fitted on its calibration split: what policies calibrate with.

Fitted per recording, so per temperature: a map fitted at temperature 0 misleads above it. Labels
are those of fixed candidate sets at every temperature: a child is accepted if its token is the
recorded one.
Two populations. Edges: the children of accepted nodes and of the anchor, label "child accepted";
a product of well fitted edges is a survival (TreeSpark, arXiv 2609.22098). Paths: every node of
the tree, label "node accepted"; what a policy sums to expect acceptance, nothing conditioned on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simulator.calibration.maps import (
    SHOWN,
    EdgeMap,
    IsotonicMap,
    Platt,
    ece,
    fit_edge_map,
    fit_isotonic,
    fit_platt,
    rounded,
)
from simulator.orders.specs import BestFirstOrder, Order
from simulator.orders.table import OrderTable
from traces.common.errors import InputError
from traces.recordings.recording import Recording

SPLIT = "calibration"
Tables = Callable[[Order], OrderTable]


# ---------------- Nodes of many trees.


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
    hit_rank = table.hit_rank[anchors].astype(np.int64)  # (n, D)
    row, depth = np.nonzero(hit_rank <= score.shape[1])
    accepted = np.zeros(score.shape, dtype=bool)
    accepted[row, hit_rank[row, depth] - 1] = True
    return TreeNodes(edge, table.depth[anchors], parent, exists, accepted)


def platt_edges(
    table: OrderTable, recording: Recording, anchors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(q, label) of every edge of the trees below an accepted node or the anchor: both (edges,).

    q float64 is the drafter's conditional probability, label bool whether the child was accepted.
    Raises InputError for an order that is calibrated already: its scores are not q.
    """
    if getattr(table.spec, "platt", None) is not None:
        raise InputError("platt_edges: the order is calibrated, accepted: one with platt None")
    if len(recording["anchor_pos"]) != len(table.anchors):
        raise InputError(f"platt_edges: the order is not one of {recording.source}")
    nodes = tree_nodes(table, anchors)
    return nodes.edge[nodes.counted], nodes.accepted[nodes.counted]


# ---------------- The maps.


@dataclass(frozen=True, slots=True)
class Fit:
    """What a calibration was fitted on."""

    recording: str  # file name
    content_hash: str
    temperature: float
    nodes: int = 63
    branch: int = 8

    @property
    def order(self) -> BestFirstOrder:
        """Trees by the drafter's own q; those of the path map are the same with `platt`."""
        return BestFirstOrder(scores="auto", ties="tick", nodes=self.nodes, branch=self.branch)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Maps from drafter probabilities to acceptance.

    platt: q of an edge to its probability. edge_map: the same by depth and sibling rank. path:
    survival (product of Platt's edges along a path) to survival, any shape.
    """

    fit: Fit
    platt: Platt
    edge_map: EdgeMap
    path: IsotonicMap
    source: str  # the file, or the recording it was fitted on just now
    forced_from: str | None = None  # another recording than the one in use, taken by force

    @property
    def order(self) -> BestFirstOrder:
        """Trees by Platt's edges, whose survivals `path` takes: exp(score)."""
        return replace(self.fit.order, platt=(self.platt.a, self.platt.b))

    def describe(self) -> dict:
        """For a policy's summary."""
        forced = {} if self.forced_from is None else {"forced_from": self.forced_from}
        fitted = {"platt_a": self.platt.a, "platt_b": self.platt.b}
        return {**fitted, "calibration": self.source, **forced}

    def edges(self, nodes: TreeNodes) -> dict[str, np.ndarray]:
        """Edge probabilities of trees by `order`: of q, Platt and the edge map, (n, M) each."""
        q = self.platt.inverse(nodes.edge)
        depth = np.maximum(nodes.depth.astype(np.int64), 1)  # of unused slots
        return {"q": q, "platt": nodes.edge, "edge_map": self.edge_map(q, depth, nodes.rank)}

    def paths(self, nodes: TreeNodes) -> dict[str, np.ndarray]:
        """Survivals of the same trees: products of those edges, and the path map: (n, M) each."""
        paths = {name: nodes.product(edge) for name, edge in self.edges(nodes).items()}
        return paths | {"isotonic": self.path(paths["platt"])}


def fit_calibration(
    recording: Recording, tables: Tables, nodes: int = 63, branch: int = 8
) -> Calibration:
    """Fit every map on the calibration split.

    Raises InputError where the split is empty or a fit does not exist.
    """
    anchors = recording.anchors_of(split=SPLIT)
    if not len(anchors):
        raise InputError(
            f"{recording.source}: split {SPLIT} has no drafted positions; accepted: at least one"
        )
    name = Path(recording.source).name
    fit = Fit(name, recording.content_hash, recording.temperature, nodes, branch)
    found = tree_nodes(tables(fit.order), anchors)
    edges = found.counted
    q, label = found.edge[edges], found.accepted[edges]
    platt = Platt(*rounded(fit_platt(q, label)))
    depth, rank = found.depth[edges], found.rank[edges]
    edge_map = fit_edge_map(q, depth, rank, label, recording.depths)
    order = replace(fit.order, platt=tuple(platt))
    found = tree_nodes(tables(order), anchors)
    survival = found.product(found.edge)
    path = fit_isotonic(survival[found.exists], found.accepted[found.exists])
    return Calibration(fit, platt, edge_map, path, source=f"fitted on {name}")


# ---------------- How far they are from what happened.

BINS = 15  # of equal width, as in `ece`
PER_DECADE = 4  # of the logarithmic bins, where most nodes of a tree are
DECADES = 4  # down to 1e-4; everything below is one bin


def measure(calibration: Calibration, table: OrderTable, anchors: np.ndarray) -> dict[str, Any]:
    """Errors of every map on the trees of `anchors` (n,), by the order `calibration.order`.

    JSON types: sizes of both populations; per level (edge, path) and map the ECE, also by depth,
    and the ratio of the sum of probabilities to what was accepted; bins of the diagrams.
    """
    nodes = tree_nodes(table, anchors)
    found = {
        "edge": (calibration.edges(nodes), nodes.counted),
        "path": (calibration.paths(nodes), nodes.exists),
    }
    measured: dict[str, Any] = {"anchors": len(anchors)}
    for level, (maps, keep) in found.items():
        label, depth = nodes.accepted[keep], nodes.depth[keep]
        kept = {name: p[keep] for name, p in maps.items()}
        measured[level] = _level(kept, label, depth, table.depths)
    return measured


def _level(maps: Mapping[str, np.ndarray], label: np.ndarray, depth: np.ndarray, depths: int):
    at = [depth == d for d in range(1, depths + 1)]
    level = {"ece": {}, "ece_by_depth": {}, "sum_ratio": {}, "bins": {}, "log_bins": {}}
    hits, last = int(label.sum()), DECADES * PER_DECADE
    for name, p in maps.items():
        errors = [ece(p[here], label[here]) if here.any() else None for here in at]
        level["ece"][name] = _short(ece(p, label))
        level["ece_by_depth"][name] = [one if one is None else _short(one) for one in errors]
        level["sum_ratio"][name] = _short(p.sum() / hits) if hits else None
        equal = np.minimum((p * BINS).astype(np.int64), BINS - 1)
        below = np.floor(-np.log10(np.maximum(p, 1e-300)) * PER_DECADE).astype(np.int64)
        level["bins"][name] = _binned(p, label, equal)
        level["log_bins"][name] = _binned(p, label, last - np.minimum(below, last))
    counts = {"count": len(label), "accepted": hits}
    return counts | {"count_by_depth": [int(here.sum()) for here in at]} | level


def _binned(p: np.ndarray, label: np.ndarray, index: np.ndarray) -> dict[str, list]:
    """Of every bin with members, by rising `index` (n,): count, accepted, and mean of p (n,)."""
    count = np.bincount(index)
    held = count > 0
    hits = np.bincount(index, weights=label)[held].astype(int)
    mean = np.bincount(index, weights=p)[held] / count[held]
    return {
        "count": count[held].tolist(),
        "accepted": hits.tolist(),
        "mean": rounded(mean, SHOWN),
    }


def _short(value: float) -> float:
    return rounded([value], SHOWN)[0]
