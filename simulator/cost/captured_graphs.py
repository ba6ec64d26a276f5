"""Captured graph sizes of a deployment, in place of those a profile was measured with.

Up to the last size a pass is padded to the next one, and costs what the profile's own rules say at
that size: measured, interpolated or beyond the table, flagged as such. Above the last size it runs
eagerly: it costs what the profile's eager rows say, at least the first of them. A profile without
eager rows knows nothing about that; its table is read on and the answer flagged `modelled`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from simulator.cost.memo import CachedVerify
from simulator.cost.step_time import Source
from simulator.cost.verify import VerifySurface
from traces.common.errors import InputError
from traces.profiles.profile import LatencyProfile

_INTERPOLATED, _MODELLED = int(Source.INTERPOLATED), int(Source.MODELLED)


def read_graph_sizes(value: Any) -> tuple[int, ...] | None:
    """Sizes of a ``latency.graph_sizes`` list; None: the profile's own.

    Raises:
        InputError: what is no list of rising sizes.
    """
    if value is None:
        return None
    listed = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
    whole = listed and all(type(size) is int and size >= 1 for size in value)
    if not whole or any(low >= high for low, high in pairwise(value)):
        raise InputError(
            f"latency.graph_sizes is {value!r}; accepted: null, or rising total tokens from 1 on"
        )
    return tuple(value)


class GraphedVerify:
    """`CachedVerify` of other captured sizes."""

    def __init__(self, profile: LatencyProfile, sizes: tuple[int, ...]) -> None:
        self.sizes, self.last = sizes, sizes[-1]
        self._table = CachedVerify(VerifySurface(profile.verify, profile.header))
        rows = [row for row in profile.verify if not row.captured]
        self._eager_totals = {row.packed_tokens_total for row in rows}
        self._eager = (
            CachedVerify(VerifySurface(rows, profile.header))
            if len(rows) not in (0, len(profile.verify))
            else self._table
        )
        self._sizes = np.array(sizes)  # (n,)

    @property
    def surface(self) -> VerifySurface:
        """What was measured."""
        return self._table.surface

    def at(self, batch: int, total: int, context: float) -> tuple[float, int]:
        """Milliseconds and Source bits."""
        if total <= self.last:
            return self._table.at(batch, self.sizes[bisect_left(self.sizes, total)], context)
        ms, bits = self._eager.at(batch, total, context)
        if not self._eager_totals:
            return ms, bits | _MODELLED
        # The first eager value stands for smaller passes too; alone it would say `measured`.
        return ms, bits if total in self._eager_totals else bits | _INTERPOLATED

    def curve(self, batch: int, totals: np.ndarray, context: float) -> np.ndarray:
        """Milliseconds at (n,) totals."""
        inside = totals <= self.last
        next_size = np.minimum(self._sizes.searchsorted(totals), len(self._sizes) - 1)
        padded = self._table.curve(batch, self._sizes[next_size], context)
        return np.where(inside, padded, self._eager.curve(batch, totals, context))
