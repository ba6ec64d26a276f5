"""Means with 95 % intervals over a handful of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import atan, cos, fsum, pi, sin, sqrt

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over n seeds; ``half_width`` is that of its 95 % interval, None with one seed."""

    mean: float
    half_width: float | None
    n: int

    @property
    def low(self) -> float:
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.half_width or 0.0)


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and Student-t interval of independent values; None without any."""
    n = len(values)
    if n == 0:
        return None
    mean = fsum(values) / n
    if n == 1:
        return Estimate(mean, None, 1)
    variance = fsum((value - mean) ** 2 for value in values) / (n - 1)
    return Estimate(mean, t_quantile(n - 1) * sqrt(variance / n), n)


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
