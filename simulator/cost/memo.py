"""The same questions come back every step: bounded memories in front of the tables."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from simulator.cost.draft import DraftTable
from simulator.cost.step_time import Source
from simulator.cost.verify import VerifySurface

_SCALARS, _CURVES = 1 << 16, 1 << 8
_CLAMPED = int(Source.CLAMPED)


class Memo:
    """A dict emptied when full, which costs less than keeping an order."""

    __slots__ = ("_known", "_limit")

    def __init__(self, limit: int) -> None:
        self._known: dict[Hashable, Any] = {}
        self._limit = limit

    def __deepcopy__(self, _memo: dict) -> Memo:
        return Memo(self._limit)  # what is remembered is computed again

    def get(self, key: Hashable, compute: Callable[..., Any], *args: Any) -> Any:
        """The value of ``key``, computed from ``args`` the first time."""
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self._limit:
                self._known.clear()
            found = self._known[key] = compute(*args)
        return found


class CachedVerify:
    """`VerifySurface` with the context clamped, the KV reads added and answers remembered."""

    def __init__(self, surface: VerifySurface) -> None:
        self.surface = surface
        self._points, self._curves = Memo(_SCALARS), Memo(_CURVES)

    def at(self, batch: int, total: int, context: float) -> tuple[float, int]:
        """Milliseconds and Source bits."""
        surface = self.surface
        low, high = surface.context_range(batch)
        inside = min(max(context, low), high)
        ms, bits = self._points.get((batch, total, inside), surface.at, batch, total, inside)
        if inside != context:
            bits |= _CLAMPED
        return ms + surface.extra_kv_ms(batch, context), bits

    def curve(self, batch: int, totals: np.ndarray, context: float) -> np.ndarray:
        """Milliseconds at (n,) totals; a whole table is kept where the context cannot matter."""
        surface = self.surface
        low, high = surface.context_range(batch)
        inside = min(max(context, low), high)
        extra_ms = surface.extra_kv_ms(batch, context)
        if low != high or totals.dtype.kind not in "iu" or len(totals) == 0:
            return surface.many(batch, totals, inside) + extra_ms
        top = 1 << int(totals.max()).bit_length()  # few distinct lengths, few tables
        table = self._curves.get((batch, top), surface.many, batch, np.arange(top), inside)
        return table[totals] + extra_ms


class CachedDraft:
    """`DraftTable` with the context clamped and answers remembered."""

    def __init__(self, drafts: DraftTable) -> None:
        self.drafts = drafts
        self._points = Memo(_SCALARS)

    def at(self, batch: int, context: float) -> tuple[float, int]:
        """Milliseconds and Source bits of one drafter step."""
        low, high = self.drafts.context_range(batch)
        inside = min(max(context, low), high)
        ms, bits = self._points.get((batch, inside), self.drafts.at, batch, inside)
        return ms, bits if inside == context else bits | _CLAMPED
