"""Mean, spread and percentiles of a metric: exact while all values are held, sketched beyond."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

ERROR = 1e-3  # of any percentile, relative
LEAST, LARGEST = 1e-6, 1e15  # smaller values count as 0, larger ones as the largest
_GAMMA = (1 + ERROR) / (1 - ERROR)
_STRIDE = np.log(_GAMMA)
_BINS = int(np.ceil(np.log(LARGEST / LEAST) / _STRIDE)) + 1


def _between(
    ranked: Callable[[np.ndarray], np.ndarray], count: int, percent: Sequence[float]
) -> np.ndarray:
    """Percentiles (0 to 100) by linear interpolation between ranks, to the bit of numpy's.

    `numpy.percentile` itself takes 0.2 ms for a handful of values, a run has some twenty lists.

    Args:
        ranked: the values of 0-based ranks.
    """
    rank = np.asarray(percent, float) / 100 * (count - 1)
    low = np.floor(rank)
    share, below, above = rank - low, ranked(low), ranked(np.ceil(rank))
    apart = above - below
    return np.where(share < 0.5, below + apart * share, above - apart * (1 - share))


class Sketch:
    """A histogram of logarithms (as DDSketch, VLDB 2019); add values, ask for percentiles."""

    __slots__ = ("_counts", "count")

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS, np.int64)  # the first bin: values up to LEAST
        self.count = 0

    def add(self, values: np.ndarray) -> None:
        """Count (n,) values of at least 0."""
        place = np.maximum(values, LEAST)
        place *= 1 / LEAST
        np.log(place, out=place)
        place *= 1 / _STRIDE
        np.ceil(place, out=place)
        place = np.minimum(place, _BINS - 1, out=place).astype(np.int32)
        self._counts += np.bincount(place, minlength=_BINS)
        self.count += len(values)

    def percentiles(self, percent: Sequence[float]) -> np.ndarray:
        """As `numpy.percentile`, each within `ERROR` of the exact one, or within `LEAST` of 0."""
        return _between(self._ranked, self.count, percent)

    def _ranked(self, rank: np.ndarray) -> np.ndarray:
        """The values of 0-based ranks, as near as the bins tell."""
        place = np.searchsorted(np.cumsum(self._counts), rank, side="right")
        return np.where(place == 0, 0.0, LEAST * 2 * np.exp(place * _STRIDE) / (_GAMMA + 1))


PERCENTILES = (90, 95, 99)
KEYS = ("mean", "median", "std", *(f"p{p}" for p in PERCENTILES))
EXACT = 1 << 20  # values that a stream holds


class Samples:
    """Values of one metric in milliseconds, all kept up to `limit` (None: however many)."""

    __slots__ = ("_mean", "_parts", "_sketch", "_squares", "count", "limit")

    def __init__(self, limit: int | None = None) -> None:
        self.limit, self.count = limit, 0
        self._parts: list[np.ndarray] = []
        self._sketch: Sketch | None = None
        self._mean = self._squares = 0.0  # of what is sketched; squares of the distance from it

    @property
    def exact(self) -> bool:
        """Whether every value is held."""
        return self._sketch is None

    def add(self, values_ms: np.ndarray) -> None:
        """Take (n,) values in; they are not copied."""
        if not len(values_ms):
            return
        self.count += len(values_ms)
        self._parts.append(values_ms)
        if self._sketch is None and self.limit is not None and self.count > self.limit:
            self._sketch = Sketch()
        if self._sketch is not None:
            for part in self._parts:
                self._fold(part)
            self._parts = []

    def _fold(self, values: np.ndarray) -> None:
        """Moments of two groups joined (Chan, Golub and LeVeque, 1983, eq. 2.1)."""
        before, more, mean = self._sketch.count, len(values), float(values.mean())
        apart, total, distance = mean - self._mean, before + more, values - mean
        spread = float(np.square(distance, out=distance).sum())
        self._squares += spread + apart * apart * before * more / total
        self._mean += apart * more / total
        self._sketch.add(values)

    def statistics(self, name: str) -> dict[str, float | None]:
        """See `statistics`."""
        if self._sketch is None:
            return statistics(name, np.concatenate([np.zeros(0), *self._parts]))
        median, *others = self._sketch.percentiles((50, *PERCENTILES)).tolist()
        std = math.sqrt(self._squares / self._sketch.count)
        numbers = (self._mean, median, std, *others)
        return {f"{key}_{name}_ms": number for key, number in zip(KEYS, numbers, strict=True)}


def statistics(name: str, values_ms: np.ndarray) -> dict[str, float | None]:
    """``mean_NAME_ms`` and so on; None for no values. Percentiles interpolate linearly."""
    if not len(values_ms):
        return {f"{key}_{name}_ms": None for key in KEYS}
    ranked, middle = np.sort(values_ms), len(values_ms) // 2
    median = ranked[middle - 1 + len(ranked) % 2 : middle + 1].mean()  # to the bit of numpy's
    others = _between(lambda rank: ranked[rank.astype(int)], len(ranked), PERCENTILES)
    numbers = (values_ms.mean(), median, values_ms.std(), *others)
    return {f"{key}_{name}_ms": float(n) for key, n in zip(KEYS, numbers, strict=True)}
