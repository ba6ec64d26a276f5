"""Least squares under shape: the non-decreasing convex curve nearest to measured points.

CaDDTree (arXiv 2606.01813) smooths its latency profile so. Convexity makes tokens per second rise
and then fall in the width, and it erases every jump of a staircase.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.errors import InputError

TOLERANCE = 1e-10  # of a column's correlation with the residual, relative


@dataclass(frozen=True, slots=True, eq=False)
class ConvexCurve:
    """level + sum of rises * max(x - knots, 0): flat before the first knot, straight at the end."""

    level: float
    knots: np.ndarray  # (k,) ascending
    rises: np.ndarray  # (k,) of the slope, at least 0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Values at x, any shape."""
        above = np.maximum(np.asarray(x, float)[..., None] - self.knots, 0.0)
        return self.level + above @ self.rises


def fit_convex(x: np.ndarray, y: np.ndarray) -> ConvexCurve:
    """Minimises the sum of squares over curves whose slopes are at least 0 and never fall.

    Such a curve is a level plus hinges of non-negative rise, at the points but the last; the level
    is free. Lawson and Hanson's active sets (1974, chapter 23), so finite and exact.

    Args:
        x: (n,) ascending, distinct. y: (n,).

    Raises:
        InputError: no points, or not ascending.
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    if len(x) == 0 or x.shape != y.shape or (np.diff(x) <= 0).any():
        raise InputError(f"fit_convex: points at {x.tolist()}; accepted: ascending, at least one")
    knots = x[:-1]
    hinges = np.maximum(x[:, None] - knots, 0.0)  # (n, n - 1)
    scale = np.linalg.norm(hinges - hinges.mean(axis=0), axis=0)
    rises = _non_negative((hinges - hinges.mean(axis=0)) / scale, y - y.mean()) / scale
    kept = rises > 0
    level = y.mean() - hinges.mean(axis=0)[kept] @ rises[kept]
    return ConvexCurve(float(level), knots[kept], rises[kept])


def _non_negative(columns: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least squares with coefficients of at least 0: (k,); columns (n, k) of length one."""
    count = columns.shape[1]
    best, active = np.zeros(count), np.zeros(count, bool)
    for _ in range(10 * count):  # a bound against rounding; each set is visited once
        if active.all():
            break
        pull = np.where(active, -np.inf, columns.T @ (y - columns @ best))
        if pull.max() <= TOLERANCE * np.linalg.norm(y):
            break
        entering = int(pull.argmax())
        active[entering] = True
        target = _solve(columns, active, y)
        if target[entering] <= 0:  # rounding: nothing is left to gain
            break
        while (target[active] <= 0).any():  # as far as the first one that would turn negative
            falling = active & (target <= 0)
            share = (best[falling] / (best[falling] - target[falling])).min()
            best += share * (target - best)
            active &= best > TOLERANCE * np.abs(best).max()
            best[~active] = 0.0
            target = _solve(columns, active, y)
        best = target
    return best


def _solve(columns: np.ndarray, active: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least squares over the active columns, 0 elsewhere: (k,)."""
    solution = np.zeros(columns.shape[1])
    solution[active] = np.linalg.lstsq(columns[:, active], y, rcond=None)[0]
    return solution
