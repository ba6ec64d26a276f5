"""All maps of one recording, fitted on its calibration split: what policies calibrate with.

Fitted per recording, so per temperature: a map fitted at temperature 0 misleads above it. Labels
are those of fixed candidate sets at every temperature: a child is accepted if its token is the
recorded one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from simulator.calibration.edge_map import EdgeMap, fit_edge_map
from simulator.calibration.isotonic import IsotonicMap, fit_isotonic, rounded
from simulator.calibration.platt import Platt, fit_platt
from simulator.calibration.tree_nodes import TreeNodes, tree_nodes
from simulator.orders.specs import BestFirstOrder, Order
from simulator.orders.table import OrderTable
from traces.common.errors import InputError
from traces.recordings.recording import Recording

SPLIT = "calibration"
DRAWS = "fixed"  # candidate sets; sampled drafts are accepted by another rule
Tables = Callable[[Order], OrderTable]


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
