"""Calibrated edge probabilities: Platt scaling of drafter probabilities, and how far off they are.

TreeSpark (arXiv 2609.22098) maps q to sigmoid(a logit q + b), fitted on the edges below accepted
nodes only; fitting on all edges biases it, since most edges hang below rejected ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.calibration.tree_nodes import tree_nodes
from simulator.orders.scores import logit
from simulator.orders.table import OrderTable
from traces.common.errors import InputError
from traces.recordings.recording import Recording

TOLERANCE = 1e-10
MAX_STEPS = 200


def sigmoid(z: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-z)), without overflow."""
    return np.exp(-np.logaddexp(0.0, -z))


def log_loss(z: np.ndarray, y: np.ndarray) -> float:
    """Mean of -log P(y) where P(1) = sigmoid(z)."""
    return float((np.logaddexp(0.0, z) - y * z).mean())


def check_fit(x: np.ndarray, y: np.ndarray, who: str) -> None:
    """Raise InputError where no finite fit of labels y (n,) on x (n,) exists.

    That is one class only, one value of x, or a threshold on x that separates the classes.
    """
    if x.shape != y.shape:
        raise InputError(f"{who}: {len(x)} probabilities and {len(y)} labels, need as many")
    if not np.isin(y, (0, 1)).all() or np.isnan(x).any():
        raise InputError(f"{who}: accepted: labels 0 or 1 and probabilities in [0, 1]")
    hits = int(y.sum())
    if hits in (0, len(y)):
        raise InputError(f"{who}: {hits} accepted of {len(y)} edges, needs both outcomes")
    yes, no = x[y == 1], x[y == 0]
    if yes.min() >= no.max() or yes.max() <= no.min():
        raise InputError(
            f"{who}: a threshold on q separates the {hits} accepted of {len(y)} edges,"
            " so no finite fit exists; use more anchors"
        )


def fit_logistic(
    design: np.ndarray,
    y: np.ndarray,
    who: str,
    ridge: np.ndarray | float = 0.0,
    offset: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Minimiser beta (k,) of sum log-loss(y, beta design + offset) + sum ridge beta^2.

    design (k, n), y (n,) of 0 and 1, ridge (k,), offset (n,). Steps are halved until the loss does
    not rise. Raises InputError, naming `who`, where the steps do not come to rest.
    """
    share = ridge / len(y) * np.ones(len(design))  # of the mean loss
    beta = np.zeros(len(design))

    def loss(at: np.ndarray) -> float:
        return log_loss(at @ design + offset, y) + float(share @ (at * at))

    for _ in range(MAX_STEPS):
        p = sigmoid(beta @ design + offset)
        gradient = design @ (p - y) / len(y) + 2 * share * beta
        hessian = (design * (p * (1 - p))) @ design.T / len(y) + np.diag(2 * share)
        step = np.linalg.solve(hessian, gradient)
        if np.abs(step).max() <= TOLERANCE * (1 + np.abs(beta).max()):
            return beta - step
        before = loss(beta)
        while loss(beta - step) > before + 1e-15 and np.abs(step).max() > 1e-14:
            step = step / 2
        beta = beta - step
    raise InputError(f"{who}: not converged after {MAX_STEPS} steps, the classes barely overlap")


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
