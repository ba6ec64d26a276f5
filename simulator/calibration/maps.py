"""Maps from drafter probabilities to acceptance, their fits, and how far off they are.

TreeSpark (arXiv 2609.22098) maps q to sigmoid(a logit q + b), fitted on the edges below accepted
nodes only; fitting on all edges biases it, since most edges hang below rejected ones. The edge map
adds a term for each depth and for the rank among siblings. The monotone curve takes survivals,
products of edges along a path, to observed ones: the pools of isotonic regression, the curve
through their centres, as in centred isotonic regression (Oron and Flournoy, Stat. Biopharm. Res.
2017), because flat steps would forget which of two nodes is the likelier one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from pydantic import model_validator

from simulator.orders.scores import logit
from traces.common.errors import InputError
from traces.common.settings import LARGEST, Many, Section, above, key, number

TOLERANCE = 1e-10
MAX_STEPS = 200
# Digits of fitted numbers: below what the order of a sum can change, so that a fit gives the same
# file on every machine; and of numbers that are only looked at.
FITTED, SHOWN = 12, 9


def rounded(values: Iterable[float], digits: int = FITTED) -> list[float]:
    """The numbers to `digits` significant ones."""
    return [float(f"{float(value):.{digits}g}") for value in values]


def sigmoid(z: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-z)), without overflow."""
    return np.exp(-np.logaddexp(0.0, -z))


def ece(p: np.ndarray, label: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error over `bins` equal-width bins of p: sum of share x |mean gap|."""
    p, label = np.asarray(p, dtype=np.float64), np.asarray(label, dtype=np.float64)
    if not p.size:
        raise InputError("ece: no probabilities, accepted: at least one")
    index = np.minimum((p * bins).astype(np.int64), bins - 1)
    gap = np.bincount(index, weights=label - p, minlength=bins)
    return float(np.abs(gap).sum() / len(p))


# ---------------- Logistic regression.


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


# ---------------- Platt's map of an edge.


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


# ---------------- The same with terms for depth and sibling rank.

CLIP = 1e-6
LEAST_SLOPE = 1e-6  # stands for a > 0
RIDGE = 5.0  # keeps the terms of depths that were hardly seen near zero


class EdgeMap(Section):
    """p = sigmoid(a logit q + b + c_depth + e ln rank), kept in [1e-6, 1 - 1e-6].

    depth: c of depths 1, 2, .... The signs of a and e keep siblings in the drafter's order.
    """

    a: above(0, LARGEST)
    b: number(-LARGEST, LARGEST)
    depth: Many[float] = key(min_length=1, accepted="a list of numbers, at least one")
    rank: number(-LARGEST, 0)

    def __call__(self, q: np.ndarray, depth: np.ndarray, rank: np.ndarray) -> np.ndarray:
        """Calibrated probabilities of q in [0, 1]; depth and rank count from 1; any one shape."""
        level = np.asarray(self.depth)[np.asarray(depth, np.int64) - 1]
        z = self.a * logit(q) + self.b + level + self.rank * np.log(rank)
        return np.clip(sigmoid(z), CLIP, 1 - CLIP)


def fit_edge_map(
    q: np.ndarray, depth: np.ndarray, rank: np.ndarray, label: np.ndarray, depths: int
) -> EdgeMap:
    """The map of 1..`depths` that minimises sum log-loss + 5 (sum c_d^2 + e^2), a > 0, e <= 0.

    q, depth, rank, label (n,) of the edges below accepted nodes. Raises InputError where no finite
    optimum exists, as `fit_platt` does.
    """
    x, y = logit(q), np.asarray(label, np.float64)
    check_fit(x, y, "fit_edge_map")
    middle, scale = x.mean(), x.std()
    terms = np.zeros((depths + 3, len(x)))  # slope, level, depths, rank
    terms[0], terms[1], terms[-1] = (x - middle) / scale, 1.0, np.log(rank)
    terms[np.asarray(depth, np.int64) + 1, np.arange(len(x))] = 1.0
    slope, level, *by_depth, by_rank = _constrained(terms, y, LEAST_SLOPE * scale)
    a, b = slope / scale, level - slope * middle / scale
    a, b, by_rank, *by_depth = rounded([a, b, by_rank, *by_depth])
    return EdgeMap(a=max(a, LEAST_SLOPE), b=b, depth=by_depth, rank=min(by_rank, 0.0))


def _constrained(terms: np.ndarray, y: np.ndarray, least: float) -> np.ndarray:
    """Minimiser (k,) whose first coefficient is at least `least` and whose last is at most 0.

    The objective is convex: where its free minimum is not allowed, the constrained one lies on the
    boundary, and is the best allowed one of its three faces.
    """
    last, allowed = len(terms) - 1, []
    for fixed in ({}, {0: least}, {last: 0.0}, {0: least, last: 0.0}):
        beta = np.zeros(len(terms))
        beta[list(fixed)] = list(fixed.values())
        free = np.setdiff1d(np.arange(len(terms)), list(fixed))
        ridge = np.where(free >= 2, RIDGE, 0.0)
        beta[free] = fit_logistic(terms[free], y, "fit_edge_map", ridge, offset=beta @ terms)
        if beta[0] >= least and beta[-1] <= 0:
            loss = log_loss(beta @ terms, y) * len(y) + RIDGE * float(beta[2:] @ beta[2:])
            allowed.append((loss, beta))
            if not fixed:
                break
    return min(allowed, key=lambda one: one[0])[1]


# ---------------- One monotone curve from estimated to observed survival.

LEAST = 1e-9  # no survival is zero: logarithms of it are taken
MAX_KNOTS = 200


class IsotonicMap(Section):
    """Survival -> survival: straight lines between knots, constant beyond the last.

    sigma: rising from 0, at most 1. survival: not falling, in [1e-9, 1].
    """

    sigma: Many[float]
    survival: Many[float]

    @model_validator(mode="after")
    def _is_monotone(self) -> IsotonicMap:
        x, y = np.asarray(self.sigma), np.asarray(self.survival)
        if not (len(x) == len(y) and 2 <= len(x) <= MAX_KNOTS):
            raise InputError(
                f"path map of {len(x)} sigma and {len(y)} survival, accepted: as many, 2 to "
                f"{MAX_KNOTS} knots"
            )
        if not (x[0] == 0 and x[-1] <= 1 and (np.diff(x) > 0).all()):
            raise InputError("path map: sigma does not rise from 0 to at most 1")
        if not (y[0] >= LEAST and y[-1] <= 1 and (np.diff(y) >= 0).all()):
            raise InputError(f"path map: survival falls, or is not in {LEAST} to 1")
        return self

    def __call__(self, sigma: np.ndarray) -> np.ndarray:
        """Calibrated survival, any shape; 0, the survival of an unused slot, stays 0."""
        sigma = np.asarray(sigma, np.float64)
        return np.where(sigma > 0, np.interp(sigma, self.sigma, self.survival), 0.0)


def fit_isotonic(sigma: np.ndarray, label: np.ndarray) -> IsotonicMap:
    """The curve of `label` (n,) of 0 and 1 over `sigma` (n,) in [0, 1]; a node of sigma 0 is none.

    Every node counts once, so each pool's value times its nodes is its number of hits: sums of
    survivals are expected hits, up to what lines between centres change (under 1 %). The lowest
    pool takes in the next until it holds a hit, and both ends of the curve run straight to (0, 0)
    and (1, 1): what was never seen is unlikely, not impossible. Pools beyond 198 are merged.

    Raises InputError without a single hit.
    """
    sigma, label = np.asarray(sigma, np.float64).ravel(), np.asarray(label, np.float64).ravel()
    sigma, label = sigma[sigma > 0], label[sigma > 0]
    if not label.any():
        raise InputError(f"fit_isotonic: none of {len(label)} nodes accepted, needs at least one")
    value, inverse = np.unique(sigma, return_inverse=True)
    weight = np.bincount(inverse).astype(np.float64)  # nodes of the same sigma
    hits = np.bincount(inverse, weights=label)
    moments = np.stack([weight, hits, weight * value])
    pools = np.add.reduceat(moments, pooled(hits, weight), axis=1)
    empty = int(np.argmax(pools[1] > 0))  # pools below the first with a hit
    lowest = pools[:, : empty + 1].sum(axis=1, keepdims=True)
    weight, hits, total = merged(np.hstack([lowest, pools[:, empty + 1 :]]), MAX_KNOTS - 2)
    x, y = total / weight, hits / weight
    top = [1.0] if x[-1] < 1 else []
    x, y = rounded([0.0, *x, *top]), rounded([LEAST, *np.maximum(y, LEAST), *top])
    rising = np.append(True, np.diff(x) > 0)  # of centres that are equal, the first
    x, y = (np.asarray(side)[rising].tolist() for side in (x, y))
    return IsotonicMap(sigma=x, survival=y)


def pooled(total: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """First index of every pool of the isotonic regression of total / weight: int64, from 0.

    total, weight (n,), weight > 0: sums of the values at each place and their weights.
    """
    from scipy.optimize import isotonic_regression  # takes 0.2 s to import

    blocks = isotonic_regression(total / weight, weights=weight).blocks
    return blocks[:-1].astype(np.int64)


def merged(pools: np.ndarray, most: int) -> np.ndarray:
    """`pools` (3, n) of weight, hits and weighted sigma, with neighbours added up to `most`.

    Each time the two whose merging raises the weighted squared error least; their order stays.
    """
    pools = pools.copy()
    while pools.shape[1] > most:
        weight, mean = pools[0], pools[1] / pools[0]
        loss = weight[1:] * weight[:-1] / (weight[1:] + weight[:-1]) * np.diff(mean) ** 2
        at = int(np.argmin(loss))
        pools[:, at] += pools[:, at + 1]
        pools = np.delete(pools, at + 1, axis=1)
    return pools
