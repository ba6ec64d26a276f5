"""Means with 95 % intervals over a handful of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt

from traces.common.intervals import LEVEL, t_quantile

__all__ = ["LEVEL", "Estimate", "estimate", "t_quantile"]


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
