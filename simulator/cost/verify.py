"""Target cost over batch, total packed tokens and context: the curves of one profile, joined."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.cost.step_time import Source
from traces.profiles.header import ProfileHeader
from traces.profiles.tables import VerifyRow

_MEASURED_CURVE, _INTERPOLATED_CURVE, _MODELLED_CURVE = (
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
            return ms[bisect_left(totals, total, 0, self.captured)], _MEASURED_CURVE
        if total > totals[-1]:
            return ms[-1] + self.slope_ms * (total - totals[-1]), _MODELLED_CURVE
        high = bisect_left(totals, total)
        if totals[high] == total:
            return ms[high], _MEASURED_CURVE
        if high == self.captured:  # below the first eager size
            return ms[high], _INTERPOLATED_CURVE if self.captured else _MEASURED_CURVE
        share = (total - totals[high - 1]) / (totals[high] - totals[high - 1])
        return ms[high - 1] + share * (ms[high] - ms[high - 1]), _INTERPOLATED_CURVE

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


_MEASURED, _INTERPOLATED, _MODELLED, _CLAMPED = (int(flag) for flag in Source)


def bracket(known: Sequence[float], value: float) -> tuple[int, int, float]:
    """Neighbours of ``value`` and the weight of the upper one; both equal outside or on a size."""
    high = bisect_left(known, value)
    if high == len(known):
        return high - 1, high - 1, 0.0
    if high == 0 or known[high] == value:
        return high, high, 0.0
    return high - 1, high, (value - known[high - 1]) / (known[high] - known[high - 1])


def context_range(
    batches: Sequence[int], contexts: Sequence[Sequence[int]], batch: int
) -> tuple[int, int]:
    """Range of the prefixes measured at the neighbours of ``batch``; a context outside is moot."""
    low, high, _ = bracket(batches, batch)
    return min(contexts[low][0], contexts[high][0]), max(contexts[low][-1], contexts[high][-1])


def _regimes_apart(low: Curve | Slab, high: Curve | Slab, low_total, high_total):
    """True where one side runs a captured graph and the other does not: never averaged."""
    return (low_total <= low.last_graph) != (high_total <= high.last_graph)


class Slab:
    """The curves of one batch size, by KV prefix; linear in context, clamped at the ends."""

    __slots__ = ("contexts", "curves", "first", "last")

    def __init__(self, rows: Sequence[VerifyRow], compute_ms_per_token: float | None) -> None:
        self.contexts = sorted({row.kv_prefix_tokens for row in rows})
        self.curves = [
            Curve([row for row in rows if row.kv_prefix_tokens == context], compute_ms_per_token)
            for context in self.contexts
        ]
        self.first = max(curve.first for curve in self.curves)
        self.last = min(curve.last for curve in self.curves)

    def at(self, total: float, context: float) -> tuple[float, int]:
        """Milliseconds and Source bits at ``total`` packed tokens and mean ``context``."""
        low, high, share = bracket(self.contexts, context)
        low_ms, bits = self.curves[low].at(total)
        if low == high:
            return low_ms, bits if self.contexts[low] == context else bits | _CLAMPED
        high_ms, high_bits = self.curves[high].at(total)
        bits |= high_bits | _INTERPOLATED
        if _regimes_apart(self.curves[low], self.curves[high], total, total):
            return max(low_ms, high_ms), bits
        return low_ms + share * (high_ms - low_ms), bits

    def many(self, totals: np.ndarray, context: float) -> np.ndarray:
        """``at`` for (n,) totals: (n,) milliseconds."""
        low, high, share = bracket(self.contexts, context)
        low_ms = self.curves[low].many(totals)
        if low == high:
            return low_ms
        high_ms = self.curves[high].many(totals)
        apart = _regimes_apart(self.curves[low], self.curves[high], totals, totals)
        mixed = low_ms + share * (high_ms - low_ms)
        return np.where(apart, np.maximum(low_ms, high_ms), mixed)

    @property
    def last_graph(self) -> int:
        """Largest captured total, 0 without graphs."""
        return max(curve.last_graph for curve in self.curves)


@dataclass(frozen=True, slots=True)
class _Between:
    """A batch between two measured ones: ``offset`` above the lower, ``span`` apart.

    Both sides are read at equal totals while both were measured there. Where the smaller batch
    ends first, it gives its last size and the larger one makes up the rest, so that the weighted
    mean is still the total asked; likewise at the larger batch's first size. So a step inside the
    measured region never leans on an extension. Whole numbers keep measured corners exact.
    """

    low: Slab
    high: Slab
    offset: int
    span: int

    def totals(self, total: float) -> tuple[float, float]:
        """Totals to read on the lower and on the higher batch."""
        low, high = self.low, self.high
        if total > low.last:
            rest = low.last + (total - low.last) * self.span / self.offset
            if rest >= high.first:
                return low.last, rest
        if total < high.first:
            start = high.first - (high.first - total) * self.span / (self.span - self.offset)
            return start, high.first
        return total, total

    def arrays(self, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`totals` for an array: two of (n,)."""
        low, high = self.low, self.high
        rest = low.last + (totals - low.last) * self.span / self.offset
        start = high.first - (high.first - totals) * self.span / (self.span - self.offset)
        above = (totals > low.last) & (rest >= high.first)
        below = ~above & (totals < high.first)
        low_totals = np.where(above, low.last, np.where(below, start, totals))
        return low_totals, np.where(above, rest, np.where(below, high.first, totals))


class VerifySurface:
    """All curves of a profile. See `step_cost` for the rules between and beyond them."""

    def __init__(self, rows: Sequence[VerifyRow], header: ProfileHeader) -> None:
        slope = header.compute_ms_per_token
        batches = sorted({row.batch for row in rows if row.batch is not None})
        self.any_batch = not batches
        self.batches = batches or [1]
        self.slabs = [
            Slab([row for row in rows if row.batch in (batch, None)], slope)
            for batch in self.batches
        ]
        self.last_total = max(row.packed_tokens_total for row in rows)
        measured_ms = self._measured_kv_ms()
        published_ms = header.kv_read_ms_per_token
        self.kv_ms_per_token = measured_ms if published_ms is None else published_ms

    def context_range(self, batch: int) -> tuple[int, int]:
        """Smallest and largest prefix measured at the batches on either side of ``batch``."""
        return context_range(self.batches, [slab.contexts for slab in self.slabs], batch)

    def at(self, batch: int, total: float, context: float) -> tuple[float, int]:
        """Milliseconds and Source bits, without the KV reads of `extra_kv_ms`."""
        if self.any_batch:
            return self.slabs[0].at(total, context)
        low, high, share = bracket(self.batches, batch)
        if low == high:
            ms, bits = self.slabs[low].at(total, context)
            return ms, bits if self.batches[low] == batch else bits | _MODELLED
        between = self._between(low, high, batch)
        low_total, high_total = between.totals(total)
        low_ms, low_bits = between.low.at(low_total, context)
        high_ms, high_bits = between.high.at(high_total, context)
        bits = low_bits | high_bits | _INTERPOLATED
        if _regimes_apart(between.low, between.high, low_total, high_total):
            return max(low_ms, high_ms), bits
        return low_ms + share * (high_ms - low_ms), bits

    def many(self, batch: int, totals: np.ndarray, context: float) -> np.ndarray:
        """``at`` for (n,) totals: (n,) milliseconds."""
        if self.any_batch:
            return self.slabs[0].many(totals, context)
        low, high, share = bracket(self.batches, batch)
        if low == high:
            return self.slabs[low].many(totals, context)
        between = self._between(low, high, batch)
        low_totals, high_totals = between.arrays(totals)
        low_ms = between.low.many(low_totals, context)
        high_ms = between.high.many(high_totals, context)
        apart = _regimes_apart(between.low, between.high, low_totals, high_totals)
        return np.where(apart, np.maximum(low_ms, high_ms), low_ms + share * (high_ms - low_ms))

    def _between(self, low: int, high: int, batch: int) -> _Between:
        offset, span = batch - self.batches[low], self.batches[high] - self.batches[low]
        return _Between(self.slabs[low], self.slabs[high], offset, span)

    def extra_kv_ms(self, batch: int, context: float) -> float:
        """KV reads of the requests beyond the largest measured batch."""
        if self.any_batch or batch <= self.batches[-1]:
            return 0.0
        return self.kv_ms_per_token * (batch - self.batches[-1]) * context

    def _measured_kv_ms(self) -> float:
        """Milliseconds per context token of one request, from the measured prefixes (0 if one).

        Taken at the smallest packed size, where no tree mask or tile effect is mixed in.
        """
        for batch, slab in zip(reversed(self.batches), reversed(self.slabs), strict=True):
            span = slab.contexts[-1] - slab.contexts[0]
            if span:
                rise = slab.curves[-1].at(slab.first)[0] - slab.curves[0].at(slab.first)[0]
                return max(0.0, rise / (span * batch))
        return 0.0
