"""How far calibrated probabilities are from what happened: errors, sums, and diagrams' bins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from simulator.calibration.fit import Calibration
from simulator.calibration.isotonic import SHOWN, rounded
from simulator.calibration.platt import ece
from simulator.calibration.tree_nodes import tree_nodes
from simulator.orders.table import OrderTable

BINS = 15  # of equal width, as in `ece`
PER_DECADE = 4  # of the logarithmic bins, where most nodes of a tree are
DECADES = 4


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
    hits = int(label.sum())
    return {
        "count": len(label),
        "accepted": hits,
        "count_by_depth": [int(here.sum()) for here in at],
        "ece": {name: _short(ece(p, label)) for name, p in maps.items()},
        "ece_by_depth": {
            name: [_short(ece(p[here], label[here])) if here.any() else None for here in at]
            for name, p in maps.items()
        },
        "sum_ratio": {name: _short(p.sum() / hits) if hits else None for name, p in maps.items()},
        "bins": {name: binned(p, label, _equal(p)) for name, p in maps.items()},
        "log_bins": {name: binned(p, label, _logarithmic(p)) for name, p in maps.items()},
    }


def binned(p: np.ndarray, label: np.ndarray, index: np.ndarray) -> dict[str, list]:
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


def _equal(p: np.ndarray) -> np.ndarray:
    return np.minimum((p * BINS).astype(np.int64), BINS - 1)


def _logarithmic(p: np.ndarray) -> np.ndarray:
    """Four bins per decade down to 1e-4; everything below is one."""
    last = DECADES * PER_DECADE
    below = np.floor(-np.log10(np.maximum(p, 1e-300)) * PER_DECADE).astype(np.int64)
    return last - np.minimum(below, last)


def _short(value: float) -> float:
    return rounded([value], SHOWN)[0]
