"""Percentiles of any number of positive values in fixed memory, with a relative error.

Counts in bins whose bounds rise by a constant factor, so that a bin's middle is within the same
share of every value in it (Masson, Rim and Lee, DDSketch, VLDB 2019, section 2). With gamma =
(1 + e) / (1 - e), bin i holds (gamma^(i-1), gamma^i] and answers 2 gamma^i / (gamma + 1).
"""

from __future__ import annotations

import numpy as np

ERROR = 1e-3  # of any percentile, relative
LEAST, LARGEST = 1e-6, 1e15  # smaller values count as 0, larger ones as the largest
_GAMMA = (1 + ERROR) / (1 - ERROR)
_STRIDE = np.log(_GAMMA)
_BINS = int(np.ceil(np.log(LARGEST / LEAST) / _STRIDE)) + 1


class Sketch:
    """A histogram of logarithms; add values, ask for percentiles."""

    __slots__ = ("_counts", "count")

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS, np.int64)  # the first bin: values up to LEAST
        self.count = 0

    def add(self, values: np.ndarray) -> None:
        """Count (n,) values of at least 0."""
        place = np.ceil(np.log(np.maximum(values, LEAST) * (1 / LEAST)) * (1 / _STRIDE))
        place = np.minimum(place, _BINS - 1).astype(np.int64)
        self._counts += np.bincount(place, minlength=_BINS)
        self.count += len(values)

    def percentiles(self, percent) -> np.ndarray:
        """Percentiles (0 to 100) by linear interpolation between ranks, as `numpy.percentile`.

        Each is within `ERROR` of the exact one, or within `LEAST` of 0.
        """
        rank = np.asarray(percent, float) / 100 * (self.count - 1)
        low = np.floor(rank)
        below, above = self._ranked(low), self._ranked(np.ceil(rank))
        return below + (rank - low) * (above - below)

    def _ranked(self, rank: np.ndarray) -> np.ndarray:
        """The values of 0-based ranks, as near as the bins tell."""
        place = np.searchsorted(np.cumsum(self._counts), rank, side="right")
        return np.where(place == 0, 0.0, LEAST * 2 * np.exp(place * _STRIDE) / (_GAMMA + 1))
