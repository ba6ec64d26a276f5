"""Mean, spread and percentiles of a metric: exact while all values are held, sketched beyond."""

from __future__ import annotations

import math

import numpy as np

from simulator.sketch import Sketch

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
        apart, total = mean - self._mean, before + more
        spread = np.square(values - mean).sum()
        self._squares += float(spread) + apart * apart * before * more / total
        self._mean += apart * more / total
        self._sketch.add(values)

    def statistics(self, name: str) -> dict[str, float | None]:
        """See `statistics`."""
        if self._sketch is None:
            parts = self._parts
            return statistics(name, parts[0] if len(parts) == 1 else _joined(parts))
        median, *others = self._sketch.percentiles((50, *PERCENTILES)).tolist()
        std = math.sqrt(self._squares / self._sketch.count)
        numbers = (self._mean, median, std, *others)
        return {f"{key}_{name}_ms": number for key, number in zip(KEYS, numbers, strict=True)}


def statistics(name: str, values_ms: np.ndarray) -> dict[str, float | None]:
    """``mean_NAME_ms`` and so on; None for no values. Percentiles interpolate linearly."""
    if not len(values_ms):
        return {f"{key}_{name}_ms": None for key in KEYS}
    numbers = (
        values_ms.mean(),
        np.median(values_ms),
        values_ms.std(),
        *np.percentile(values_ms, PERCENTILES),
    )
    return {f"{key}_{name}_ms": float(n) for key, n in zip(KEYS, numbers, strict=True)}


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *parts])
