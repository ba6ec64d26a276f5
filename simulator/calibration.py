"""Calibrated edge probabilities: Platt scaling of drafter probabilities, and how far off they are.

TreeSpark (arXiv 2609.22098) maps q to sigmoid(a logit q + b), fitted on the edges below accepted
nodes only; fitting on all edges biases it, since most edges hang below rejected ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.logistic import check_fit, fit_logistic, sigmoid
from simulator.orders.table import OrderTable
from simulator.tree_nodes import tree_nodes
from traces.errors import InputError
from traces.recording import Recording

Q_MAX = 1 - 1e-9  # TreeSpark's clamp
Q_MIN = 1e-300


class Platt(NamedTuple):
    """The map q -> sigmoid(a logit q + b); a plain pair, as orders take it."""

    a: float
    b: float

    def __call__(self, q: np.ndarray) -> np.ndarray:
        """Calibrated probabilities of q in [0, 1], any shape."""
        return sigmoid(self.a * logit(q) + self.b)

    def inverse(self, p: np.ndarray) -> np.ndarray:
        """The q that the map sends to p."""
        return sigmoid((logit(p) - self.b) / self.a)


def logit(q: np.ndarray) -> np.ndarray:
    """log(q / (1 - q)) in float64, q clamped into (0, 1 - 1e-9]."""
    q = np.clip(np.asarray(q, dtype=np.float64), Q_MIN, Q_MAX)
    return np.log(q) - np.log1p(-q)


def fit_platt(q: np.ndarray, label: np.ndarray) -> Platt:
    """Unregularised logistic regression of `label` (n,) on logit `q` (n,), by Newton's method.

    Raises InputError where no finite optimum exists: one class only, one value of q, or a
    threshold on q that separates the classes.
    """
    x, y = logit(q).ravel(), np.asarray(label, dtype=np.float64).ravel()
    check_fit(x, y, "fit_platt")
    # Newton's steps do not depend on scale or origin of x, but their rounding does
    middle, scale = x.mean(), x.std()
    design = np.stack([(x - middle) / scale, np.ones_like(x)])  # (2, n)
    slope, level = fit_logistic(design, y, "fit_platt")
    return Platt(float(slope / scale), float(level - slope * middle / scale))


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


def ece(p: np.ndarray, label: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error over `bins` equal-width bins of p: sum of share x |mean gap|."""
    p, label = np.asarray(p, dtype=np.float64), np.asarray(label, dtype=np.float64)
    if not p.size:
        raise InputError("ece: no probabilities, accepted: at least one")
    index = np.minimum((p * bins).astype(np.int64), bins - 1)
    gap = np.bincount(index, weights=label - p, minlength=bins)
    return float(np.abs(gap).sum() / len(p))
