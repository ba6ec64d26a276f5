"""The batch-one latency probe that a profile, and an engine that runs it, would give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.cost.captured_graphs import GraphedVerify
from simulator.cost.cliffs import Cliff, beyond_many
from simulator.cost.memo import CachedVerify
from simulator.cost.verify import Curve
from traces.common.errors import InputError


def width_probe(
    described: str, target: CachedVerify | GraphedVerify, cliffs: Sequence[Cliff], context: float
) -> tuple[np.ndarray, np.ndarray]:
    """Packed tokens (n,) and milliseconds (n,) of a lone request. See `StepCost.width_probe`.

    described: the profile, in errors.
    """
    surface = target.surface
    if surface.batches[0] != 1:
        raise InputError(
            f"{described}: smallest batch {surface.batches[0]}; accepted for a width probe: batch 1"
        )
    slab = surface.slabs[0]
    nearest = min(range(len(slab.contexts)), key=lambda i: abs(slab.contexts[i] - context))
    curve = slab.curves[nearest]
    totals, ms = np.array(curve.totals), np.array(curve.ms)
    if isinstance(target, GraphedVerify):
        totals = _sizes(curve, target)
        ms = target.curve(1, totals, slab.contexts[nearest])
    return totals, beyond_many(cliffs, ms * 1e-3, totals, totals) * 1e3 if cliffs else ms


def _sizes(curve: Curve, target: GraphedVerify) -> np.ndarray:
    """Captured sizes inside the table, and behind the last of all what was measured: (n,)."""
    captured = [size for size in target.sizes if curve.first <= size <= curve.last]
    eager = [total for total in curve.totals if total > target.last]
    return np.array(captured + eager or curve.totals)
