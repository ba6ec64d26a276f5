"""Whether an open loop is in its steady state, or its queue grows.

A load above what the server gets through by a share d lengthens the queue by d seconds every
second, so that requests that come a second later stay d seconds longer (the fluid limit of a queue;
D. Gross, J. Shortle, J. Thompson, C. Harris, Fundamentals of Queueing Theory, 4th ed., 2008,
section 1.6). By Little's law the number of requests in the server then grows as well, running
ones and waiting ones together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GROWTH = 0.01  # seconds per second: an overload of one per cent
NOISE = 2.0  # standard errors that a rise must exceed
LEFT_OUT = 0.1  # of the requests, the first: they met an empty server
BATCHES = 5  # of each half, whose means say how noisy its mean is
SPANS = 10.0  # stays that a run must last at least


@dataclass(frozen=True, slots=True)
class Trend:
    """How much longer requests stay in the second half than in the first."""

    growth: float  # seconds of stay per second of time
    certain: bool  # whether the rise is more than noise

    @property
    def growing(self) -> bool:
        return self.certain and self.growth > GROWTH


def trend(arrival_s: np.ndarray, stay_s: np.ndarray) -> Trend:
    """The trend of `stay_s` (n,) over `arrival_s` (n,), ascending; the first tenth is left out.

    The means of the halves' batches give the noise (the method of batch means): neighbours wait in
    the same queue, and are no independent samples.
    """
    kept = slice(int(LEFT_OUT * len(stay_s)), None)
    halves = [np.array_split(values[kept], 2) for values in (arrival_s, stay_s)]
    (early, late), (first, second) = halves
    if min(len(first), len(second)) < BATCHES:
        return Trend(0.0, False)
    rise_s, span_s = float(second.mean() - first.mean()), float(late.mean() - early.mean())
    variance = sum(_variance_of_mean(half) for half in (first, second))
    growth = rise_s / span_s if span_s > 0 else 0.0
    return Trend(growth, rise_s > NOISE * float(np.sqrt(variance)))


def _variance_of_mean(values: np.ndarray) -> float:
    means = np.array([part.mean() for part in np.array_split(values, BATCHES)])
    return float(means.var(ddof=1) / BATCHES)
