"""Drafter cost over batch and context."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.cost.step_time import Source
from simulator.cost.verify import bracket, context_range
from traces.profiles.header import ProfileHeader
from traces.profiles.tables import DraftRow

_MEASURED, _INTERPOLATED, _MODELLED, _CLAMPED = (int(flag) for flag in Source)


class DraftTable:
    """One drafter step: linear in batch and in context, a slope beyond the largest batch."""

    def __init__(self, rows: Sequence[DraftRow], header: ProfileHeader) -> None:
        self.batches = sorted({row.batch for row in rows})
        self.contexts = [
            [row.kv_prefix_tokens for row in rows if row.batch == batch] for batch in self.batches
        ]
        self.ms = [[row.draft_ms for row in rows if row.batch == batch] for batch in self.batches]
        self._compute_ms = header.draft_ms_per_request or 0.0

    def context_range(self, batch: int) -> tuple[int, int]:
        """Smallest and largest prefix measured at the batches on either side of ``batch``."""
        return context_range(self.batches, self.contexts, batch)

    def at(self, batch: int, context: float) -> tuple[float, int]:
        """Milliseconds and Source bits of one drafter step."""
        low, high, share = bracket(self.batches, batch)
        low_ms, bits = self._at_batch(low, context)
        if low != high:
            high_ms, high_bits = self._at_batch(high, context)
            return low_ms + share * (high_ms - low_ms), bits | high_bits | _INTERPOLATED
        extra = batch - self.batches[low]
        if extra == 0:
            return low_ms, bits
        if extra > 0:
            low_ms += extra * self._slope_ms(context)
        return low_ms, bits | _MODELLED

    def _at_batch(self, index: int, context: float) -> tuple[float, int]:
        contexts, ms = self.contexts[index], self.ms[index]
        low, high, share = bracket(contexts, context)
        if low == high:
            return ms[low], _MEASURED if contexts[low] == context else _CLAMPED
        return ms[low] + share * (ms[high] - ms[low]), _INTERPOLATED

    def _slope_ms(self, context: float) -> float:
        """Per request beyond the table: the larger of the last octave's secant and the compute."""
        last = self.batches[-1]
        low = max(self.batches[0], last / 2)
        if low == last:
            return self._compute_ms
        rise = self.at(last, context)[0] - self.at(low, context)[0]
        return max(self._compute_ms, rise / (last - low), 0.0)
