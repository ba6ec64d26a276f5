"""A latency curve as a roofline: the larger of a memory-bound and a compute-bound line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.errors import InputError


@dataclass(frozen=True, slots=True)
class Roofline:
    """max over lines of level + slope * x; each is (level, slope)."""

    memory: tuple[float, float]
    compute: tuple[float, float]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Values at x, any shape."""
        (a, b), (c, d) = self.memory, self.compute
        return np.maximum(a + b * np.asarray(x, float), c + d * np.asarray(x, float))


def fit_roofline(x: np.ndarray, y: np.ndarray, sigma: np.ndarray) -> Roofline:
    """Two lines of non-negative slope, one through each side of the split that fits best.

    Every split of the ascending points is tried, and judged by the weighted squared error of the
    larger of its two lines over all points.

    Args:
        x, y: (n,). sigma: (n,) standard deviations, in any unit.

    Raises:
        InputError: no points.
    """
    x, y, weight = np.asarray(x, float), np.asarray(y, float), 1 / np.asarray(sigma, float) ** 2
    if len(x) == 0:
        raise InputError("fit_roofline: no points; accepted: at least one")
    whole = _line(x, y, weight)
    candidates = [Roofline(whole, whole)]
    for k in range(1, len(x)):
        candidates.append(
            Roofline(_line(x[:k], y[:k], weight[:k]), _line(x[k:], y[k:], weight[k:]))
        )
    errors = [float((weight * (fit(x) - y) ** 2).sum()) for fit in candidates]
    return candidates[int(np.argmin(errors))]


def _line(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Weighted least squares with a slope of at least 0: (level, slope)."""
    middle, level = np.average(x, weights=weight), np.average(y, weights=weight)
    spread = (weight * (x - middle) ** 2).sum()
    slope = (weight * (x - middle) * (y - level)).sum() / spread if spread > 0 else 0.0
    slope = max(0.0, float(slope))
    return float(level - slope * middle), slope
