"""Intervals over prompts, for two systems that served the same prompts.

What is compared is a ratio of sums over prompts (tokens over seconds, milliseconds over requests).
Prompts are resampled, never requests or rounds: all that one prompt brought stays together, and
both systems are given the same resample. The interval is the percentile bootstrap's with its
levels widened by sqrt(n / (n - 1)) and Student's t in place of the normal, because percentiles
alone are too narrow for few prompts (T. Hesterberg, What Teachers Should Know About the Bootstrap,
The American Statistician 69:4, 2015, section 3.3, "expanded percentile").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from statistics import NormalDist, fmean, stdev

import numpy as np

LEVEL = 0.95


@lru_cache
def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """The t with P(-t < T < t) = level, T Student's with ``freedom`` >= 1 degrees."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Per prompt, P of them: what it adds above and below the line. A prompt may add nothing."""

    amount: np.ndarray  # (P,)
    per: np.ndarray  # (P,)

    @property
    def value(self) -> float:
        """NaN where nothing stands below the line."""
        return float(_divided(self.amount.sum(), self.per.sum()))


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its 95 % interval; one prompt has none."""

    value: float
    low: float | None
    high: float | None


def over_seeds(values: Sequence[float]) -> Interval:
    """The mean of (n,) values and its 95 % interval by Student's t; one value has none."""
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    half = t_quantile(len(values) - 1, LEVEL) * stdev(values) / sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


@lru_cache(maxsize=4)
def resampled_prompts(prompts: int, resamples: int, seed: int) -> np.ndarray:
    """How often every prompt is drawn: (resamples, prompts), the same array for the same arguments.

    Rows sum to `prompts`.
    """
    drawn = np.random.default_rng(seed).integers(prompts, size=(resamples, prompts))
    flat = (drawn + np.arange(resamples)[:, None] * prompts).ravel()
    counts = np.bincount(flat, minlength=resamples * prompts).reshape(resamples, prompts)
    counts = counts.astype(float)
    counts.flags.writeable = False  # shared
    return counts


def resampled(sums: Sums, weights: np.ndarray) -> np.ndarray:
    """The value in every resample: (resamples,); NaN where nothing below the line was drawn."""
    amount, per = (weights @ np.stack([sums.amount, sums.per], axis=1)).T
    return _divided(amount, per)


def log_ratios(a: Sums, b: Sums, weights: np.ndarray) -> np.ndarray:
    """log(value of `a` / value of `b`) in every resample: (resamples,), NaN without a value."""
    ratio = _divided(resampled(a, weights), resampled(b, weights))
    return np.log(ratio, out=np.full(len(ratio), np.nan), where=ratio > 0)


def paired_ratio(a: Sums, b: Sums, resamples: int, seed: int) -> Interval:
    """Value of `a` over value of `b`, prompts of the same index resampled together."""
    weights = resampled_prompts(len(a.amount), resamples, seed)
    value = float(_divided(a.value, b.value))
    return interval(value, np.exp(log_ratios(a, b, weights)), prompts_of(a, b))


def paired_difference(a: Sums, b: Sums, resamples: int, seed: int) -> Interval:
    """Value of `a` minus value of `b`, likewise."""
    weights = resampled_prompts(len(a.amount), resamples, seed)
    draws = resampled(a, weights) - resampled(b, weights)
    return interval(a.value - b.value, draws, prompts_of(a, b))


def prompts_of(*sums: Sums) -> int:
    """Prompts that add anything to any of the sums."""
    return int(np.count_nonzero(np.any([one.per != 0 for one in sums], axis=0)))


def interval(value: float, draws: np.ndarray, prompts: int) -> Interval:
    """The widened percentile interval of `draws` (resamples,) over n `prompts`."""
    draws = draws[~np.isnan(draws)]
    if prompts < 2 or not len(draws):
        return Interval(value, None, None)
    tail = NormalDist().cdf(-sqrt(prompts / (prompts - 1)) * t_quantile(prompts - 1, LEVEL))
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(value, float(low), float(high))


def _divided(above, below) -> np.ndarray:
    """above / below, NaN where that has no meaning."""
    above, below = np.asarray(above, float), np.asarray(below, float)
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)


def throughput_sums(
    requests: Mapping[str, np.ndarray],
    window: tuple[float, float],
    clients: int,
    prompts: np.ndarray,
) -> Sums:
    """A full-batch window's tokens per second by prompt.

    Args:
        requests: columns (N,) `sequence`, `arrival_s`, `finish_s` and `window_tokens`, the tokens
            that each emitted inside the window.
        window: seconds at which it starts and ends.
        clients: of the closed loop.
        prompts: (P,) ascending, sequences that the sums are over; every request's is among them.
    """
    start_s, end_s = window
    inside_s = np.minimum(requests["finish_s"], end_s) - np.maximum(requests["arrival_s"], start_s)
    row = np.searchsorted(prompts, requests["sequence"])
    return Sums(
        clients * np.bincount(row, requests["window_tokens"], len(prompts)),
        np.bincount(row, np.maximum(inside_s, 0.0), len(prompts)),
    )
