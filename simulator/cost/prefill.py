"""Prefill cost over prompt length: the third, optional table of a latency profile."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from simulator.cost.source import Source
from simulator.cost.tables import PrefillRow

_MEASURED, _INTERPOLATED, _MODELLED, _CLAMPED = (int(flag) for flag in Source)


class PrefillCurve:
    """Straight lines between measured sizes; below the smallest, its value.

    Beyond the largest the last secant goes on, never falling; a single size has the secant from
    no tokens at no time. Without any row prefill is free.
    """

    __slots__ = ("_ms", "_sizes", "ms", "sizes", "slope_ms")

    def __init__(self, rows: Sequence[PrefillRow]) -> None:
        self.sizes = [row.prompt_tokens for row in rows]
        self.ms = [row.prefill_ms for row in rows]
        sizes, ms = [0, *self.sizes], [0.0, *self.ms]
        self.slope_ms = max(0.0, (ms[-1] - ms[-2]) / (sizes[-1] - sizes[-2])) if rows else 0.0
        self._sizes, self._ms = np.array(self.sizes, np.int64), np.array(self.ms, float)

    @property
    def last(self) -> int:
        """Largest measured prompt, 0 without any."""
        return self.sizes[-1] if self.sizes else 0

    @property
    def fixed_ms(self) -> float:
        """What the shortest pass takes: mostly the weights, read once."""
        return self.ms[0] if self.ms else 0.0

    def at(self, tokens: int) -> float:
        """Milliseconds of a pass over ``tokens``."""
        sizes, ms = self.sizes, self.ms
        if not sizes:
            return 0.0
        if tokens >= sizes[-1]:
            return ms[-1] + self.slope_ms * (tokens - sizes[-1])
        high = bisect_left(sizes, tokens)
        if high == 0:
            return ms[0]
        share = (tokens - sizes[high - 1]) / (sizes[high] - sizes[high - 1])
        return ms[high - 1] + share * (ms[high] - ms[high - 1])

    def many(self, tokens: np.ndarray) -> np.ndarray:
        """`at` for (n,) prompts, the same to the last bit: (n,) milliseconds."""
        sizes, ms = self._sizes, self._ms
        if not len(sizes):
            return np.zeros(len(tokens))
        beyond = ms[-1] + self.slope_ms * (tokens - sizes[-1])
        if len(sizes) == 1:
            return np.where(tokens >= sizes[-1], beyond, ms[0])
        high = np.clip(sizes.searchsorted(tokens), 1, len(sizes) - 1)
        share = (tokens - sizes[high - 1]) / (sizes[high] - sizes[high - 1])
        inside = ms[high - 1] + share * (ms[high] - ms[high - 1])
        inside = np.where(tokens <= sizes[0], ms[0], inside)
        return np.where(tokens >= sizes[-1], beyond, inside)

    def modelled(self, tokens: np.ndarray) -> np.ndarray:
        """(n,) bool: prompts longer than the table."""
        return (tokens > self.last) & (self.last > 0)

    def bits(self, tokens: int) -> int:
        """Source of `at`; measured where prefill is free, as it is left out there."""
        if tokens > self.last > 0:
            return _MODELLED
        return _MEASURED if not self.sizes or tokens in self.sizes else _INTERPOLATED
