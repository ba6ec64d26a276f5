"""Calibrated edge probabilities: Platt scaling of drafter probabilities, and how far off they are.

TreeSpark (arXiv 2609.22098) maps q to sigmoid(a logit q + b), fitted on the edges below accepted
nodes only; fitting on all edges biases it, since most edges hang below rejected ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.orders.table import OrderTable
from traces.errors import InputError
from traces.recording import Recording

Q_MAX = 1 - 1e-9  # TreeSpark's clamp
Q_MIN = 1e-300
TOLERANCE = 1e-10
MAX_STEPS = 200


class Platt(NamedTuple):
    """The map q -> sigmoid(a logit q + b); a plain pair, as orders take it."""

    a: float
    b: float

    def __call__(self, q: np.ndarray) -> np.ndarray:
        """Calibrated probabilities of q in [0, 1], any shape."""
        return _sigmoid(self.a * logit(q) + self.b)


def logit(q: np.ndarray) -> np.ndarray:
    """log(q / (1 - q)) in float64, q clamped into (0, 1 - 1e-9]."""
    q = np.clip(np.asarray(q, dtype=np.float64), Q_MIN, Q_MAX)
    return np.log(q) - np.log1p(-q)


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -z))


def fit_platt(q: np.ndarray, label: np.ndarray) -> Platt:
    """Unregularised logistic regression of `label` (n,) on logit `q` (n,), by Newton's method.

    Raises InputError where no finite optimum exists: one class only, one value of q, or a
    threshold on q that separates the classes.
    """
    x, y = logit(q).ravel(), np.asarray(label, dtype=np.float64).ravel()
    _check_fit(x, y)
    # Newton's steps do not depend on scale or origin of x, but their rounding does
    middle, scale = x.mean(), x.std()
    design = np.stack([(x - middle) / scale, np.ones_like(x)])  # (2, n)
    slope, level = _newton(design, y)
    return Platt(float(slope / scale), float(level - slope * middle / scale))


def _check_fit(x: np.ndarray, y: np.ndarray) -> None:
    if x.shape != y.shape:
        raise InputError(f"fit_platt: {len(x)} probabilities and {len(y)} labels, need as many")
    if not np.isin(y, (0, 1)).all() or np.isnan(x).any():
        raise InputError("fit_platt: accepted: labels 0 or 1 and probabilities in [0, 1]")
    hits = int(y.sum())
    if hits in (0, len(y)):
        raise InputError(f"fit_platt: {hits} accepted of {len(y)} edges, needs both outcomes")
    yes, no = x[y == 1], x[y == 0]
    if yes.min() >= no.max() or yes.max() <= no.min():
        raise InputError(
            f"fit_platt: a threshold on q separates the {hits} accepted of {len(y)} edges,"
            " so no finite fit exists; use more anchors"
        )


def _newton(design: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minimiser (2,) of the mean log-loss; steps are halved until the loss does not rise."""
    beta = np.zeros(2)
    for _ in range(MAX_STEPS):
        p = _sigmoid(beta @ design)
        gradient = design @ (p - y) / len(y)
        hessian = (design * (p * (1 - p))) @ design.T / len(y)
        step = np.linalg.solve(hessian, gradient)
        if np.abs(step).max() <= TOLERANCE * (1 + np.abs(beta).max()):
            return beta - step
        before = _log_loss(beta @ design, y)
        while _log_loss((beta - step) @ design, y) > before + 1e-15 and np.abs(step).max() > 1e-14:
            step = step / 2
        beta = beta - step
    raise InputError(
        f"fit_platt: not converged after {MAX_STEPS} steps, the classes barely overlap"
    )


def _log_loss(z: np.ndarray, y: np.ndarray) -> float:
    return float((np.logaddexp(0.0, z) - y * z).mean())


def platt_edges(
    table: OrderTable, recording: Recording, anchors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(q, label) of every edge of the trees below an accepted node or the anchor: both (edges,).

    q float64 is the drafter's conditional probability, label bool whether the child was accepted.
    Raises InputError for an order that is calibrated already: its scores are not q.
    """
    if getattr(table.spec, "platt", None) is not None:
        raise InputError("platt_edges: the order is calibrated, accepted: one with platt None")
    anchors = np.asarray(anchors)
    if len(recording["anchor_pos"]) != len(table.anchors):
        raise InputError(f"platt_edges: the order is not one of {recording.source}")
    score, parent = table.score[anchors], table.parent[anchors].astype(np.int64)
    accepted = _on_path(table.hit_rank[anchors], score.shape[1])
    exists = np.arange(score.shape[1]) < table.size[anchors, None]
    rooted, above = parent < 0, np.maximum(parent, 0)
    below_path = exists & (rooted | np.take_along_axis(accepted, above, axis=1))
    edge = score - np.where(rooted, 0.0, np.take_along_axis(score, above, axis=1))
    return np.exp(edge[below_path]), accepted[below_path]


def _on_path(hit_rank: np.ndarray, nodes: int) -> np.ndarray:
    """Nodes that are accepted: bool (n, nodes) of hit_rank (n, D)."""
    row, depth = np.nonzero(hit_rank <= nodes)
    accepted = np.zeros((len(hit_rank), nodes), dtype=bool)
    accepted[row, hit_rank[row, depth].astype(np.int64) - 1] = True
    return accepted


def ece(p: np.ndarray, label: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error over `bins` equal-width bins of p: sum of share x |mean gap|."""
    p, label = np.asarray(p, dtype=np.float64), np.asarray(label, dtype=np.float64)
    if not p.size:
        raise InputError("ece: no probabilities, accepted: at least one")
    index = np.minimum((p * bins).astype(np.int64), bins - 1)
    gap = np.bincount(index, weights=label - p, minlength=bins)
    return float(np.abs(gap).sum() / len(p))
