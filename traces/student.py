"""Quantiles of Student's t, for every interval of the project."""

from __future__ import annotations

from functools import lru_cache
from math import atan, cos, pi, sin, sqrt

LEVEL = 0.95


@lru_cache
def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """The t with P(-t < T < t) = level for ``freedom`` >= 1 degrees, by bisection."""
    low, high = 0.0, 1.0
    while _central_probability(high, freedom) < level:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if _central_probability(middle, freedom) < level:
            low = middle
        else:
            high = middle
    return high


def _central_probability(t: float, freedom: int) -> float:
    """P(-t < T < t), the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    total = 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cos(angle) ** 2 * k / (k + 1)
    if odd:
        return 2 / pi * (angle + sin(angle) * total)
    return sin(angle) * total
