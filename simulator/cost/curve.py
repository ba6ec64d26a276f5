"""Target cost against total packed tokens, at one batch size and one KV prefix."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from simulator.cost.source import Source
from simulator.cost.tables import VerifyRow

_MEASURED, _INTERPOLATED, _MODELLED = (
    int(Source.MEASURED),
    int(Source.INTERPOLATED),
    int(Source.MODELLED),
)


class Curve:
    """A staircase over captured graphs, then straight lines between eager points, then a slope.

    Inside the graphs a step costs what the next captured size costs, because that graph runs.
    Above the last graph it costs at least the first eager value: nothing is interpolated across
    the regimes. Above the last size it rises by ``slope_ms`` per token (see `step_cost`).
    """

    __slots__ = ("_ms", "_totals", "captured", "last_graph", "ms", "slope_ms", "totals")

    def __init__(self, rows: Sequence[VerifyRow], compute_ms_per_token: float | None) -> None:
        self.totals = [row.packed_tokens_total for row in rows]
        self.ms = [row.verify_ms for row in rows]
        self.captured = sum(row.captured for row in rows)
        self.last_graph = self.totals[self.captured - 1] if self.captured else 0
        self._totals = np.array(self.totals, float)  # (n,)
        self._ms = np.array(self.ms)  # (n,)
        self.slope_ms = 0.0
        self.slope_ms = max(0.0, self._last_octave_slope(), compute_ms_per_token or 0.0)

    @property
    def first(self) -> int:
        """Smallest measured total."""
        return self.totals[0]

    @property
    def last(self) -> int:
        """Largest measured total."""
        return self.totals[-1]

    def at(self, total: float) -> tuple[float, int]:
        """Milliseconds and Source bits of a step of ``total`` packed tokens."""
        totals, ms = self.totals, self.ms
        if total <= self.last_graph:
            return ms[bisect_left(totals, total, 0, self.captured)], _MEASURED
        if total > totals[-1]:
            return ms[-1] + self.slope_ms * (total - totals[-1]), _MODELLED
        high = bisect_left(totals, total)
        if totals[high] == total:
            return ms[high], _MEASURED
        if high == self.captured:  # below the first eager size
            return ms[high], _INTERPOLATED if self.captured else _MEASURED
        share = (total - totals[high - 1]) / (totals[high] - totals[high - 1])
        return ms[high - 1] + share * (ms[high] - ms[high - 1]), _INTERPOLATED

    def many(self, totals: np.ndarray) -> np.ndarray:
        """``at`` for an array of totals: (n,) tokens to (n,) milliseconds."""
        known, ms, split = self._totals, self._ms, self.captured
        beyond = self.slope_ms * np.maximum(totals - known[-1], 0.0)
        if split == len(known):
            inside = ms[np.minimum(known.searchsorted(totals), split - 1)]
            return inside + beyond
        costs = np.interp(totals, known[split:], ms[split:]) + beyond
        if split:
            graph = ms[np.minimum(known[:split].searchsorted(totals), split - 1)]
            costs = np.where(totals <= self.last_graph, graph, costs)
        return costs

    def _last_octave_slope(self) -> float:
        """Secant over the last factor of two of the last regime; one noisy pair cannot set it."""
        start = self.captured if self.captured < len(self.totals) else 0
        low = max(self.totals[start], self.last / 2)
        if low >= self.last:
            return 0.0
        return (self.ms[-1] - self.at(low)[0]) / (self.last - low)
