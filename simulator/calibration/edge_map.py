"""Edge probabilities by depth and sibling rank: TreeSpark's map with a term for each.

Objective and constraints are those of a regularised logistic regression; the penalty keeps the
terms of depths that were hardly seen near zero, the signs keep siblings in the drafter's order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator.calibration.isotonic import rounded
from simulator.calibration.platt import check_fit, fit_logistic, log_loss, sigmoid
from simulator.orders.scores import logit
from traces.common.errors import InputError

CLIP = 1e-6
LEAST_SLOPE = 1e-6  # stands for a > 0
RIDGE = 5.0


@dataclass(frozen=True, slots=True)
class EdgeMap:
    """p = sigmoid(a logit q + b + c_depth + e ln rank), kept in [1e-6, 1 - 1e-6].

    depth: c of depths 1, 2, .... InputError unless all are finite, a > 0 and e <= 0.
    """

    a: float
    b: float
    depth: tuple[float, ...]
    rank: float

    def __post_init__(self) -> None:
        if not np.isfinite([self.a, self.b, *self.depth, self.rank]).all():
            raise InputError("not every number is finite")
        if not (self.depth and self.a > 0 and self.rank <= 0):
            raise InputError(
                f"a is {self.a}, rank {self.rank}, of {len(self.depth)} depths; accepted: a above"
                " 0, rank at most 0, at least one depth"
            )

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
    return EdgeMap(max(a, LEAST_SLOPE), b, tuple(by_depth), min(by_rank, 0.0))


def _constrained(terms: np.ndarray, y: np.ndarray, least: float) -> np.ndarray:
    """Minimiser (k,) whose first coefficient is at least `least` and whose last is at most 0.

    The objective is convex: where its free minimum is not allowed, the constrained one lies on the
    boundary, and is the best allowed one of its three faces.
    """
    free = _face(terms, y, {})
    if _allowed(free, least):
        return free
    found = [beta for beta in _boundary(terms, y, least) if _allowed(beta, least)]
    return min(found, key=lambda beta: _objective(beta, terms, y))


def _boundary(terms: np.ndarray, y: np.ndarray, least: float) -> Iterator[np.ndarray]:
    last = len(terms) - 1
    for fixed in ({0: least}, {last: 0.0}, {0: least, last: 0.0}):
        yield _face(terms, y, fixed)


def _face(terms: np.ndarray, y: np.ndarray, fixed: dict[int, float]) -> np.ndarray:
    """Minimiser (k,) where the coefficients in `fixed` have the values given there."""
    beta = np.zeros(len(terms))
    beta[list(fixed)] = list(fixed.values())
    free = np.setdiff1d(np.arange(len(terms)), list(fixed))
    ridge = np.where(free >= 2, RIDGE, 0.0)
    beta[free] = fit_logistic(terms[free], y, "fit_edge_map", ridge, offset=beta @ terms)
    return beta


def _allowed(beta: np.ndarray, least: float) -> bool:
    return bool(beta[0] >= least and beta[-1] <= 0)


def _objective(beta: np.ndarray, terms: np.ndarray, y: np.ndarray) -> float:
    return log_loss(beta @ terms, y) * len(y) + RIDGE * float(beta[2:] @ beta[2:])
