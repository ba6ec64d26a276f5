"""A cost model as flat arrays, for compiled code."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from simulator.cost import StepCost
from simulator.engine.compiled.kernel import Host, Prices


def prices_of(cost: StepCost) -> Prices:
    """The tables behind `cost`; `kernel.price` reads them as `StepCost.step` does."""
    surface, drafts = cost._target.surface, cost._drafter.drafts
    slabs = surface.slabs
    curves = [curve for slab in slabs for curve in slab.curves]
    terms = {name: float(getattr(cost.host, name)) for name in Host._fields if name != "overlap"}
    cliffs = [(cliff.above, cliff.factor, cliff.add_ms * 1e-3) for cliff in cost.cliffs]
    return Prices(
        batch=_floats(surface.batches),
        any_batch=surface.any_batch,
        kv_ms=float(surface.kv_ms_per_token),
        slab=_starts(slab.contexts for slab in slabs),
        slab_first=_floats(slab.first for slab in slabs),
        slab_last=_floats(slab.last for slab in slabs),
        slab_graph=_floats(slab.last_graph for slab in slabs),
        context=_floats(context for slab in slabs for context in slab.contexts),
        curve=_starts(curve.totals for curve in curves),
        captured=np.array([curve.captured for curve in curves], np.int64),
        graph=_floats(curve.last_graph for curve in curves),
        slope=_floats(curve.slope_ms for curve in curves),
        total=_floats(total for curve in curves for total in curve.totals),
        ms=_floats(ms for curve in curves for ms in curve.ms),
        draft_batch=_floats(drafts.batches),
        draft_row=_starts(drafts.contexts),
        draft_context=_floats(context for row in drafts.contexts for context in row),
        draft_ms=_floats(ms for row in drafts.ms for ms in row),
        draft_compute_ms=float(drafts._compute_ms),
        draft_steps=float(cost.draft_steps),
        kind=int(cost._kind),
        dense=cost.packing == "dense",
        padded=np.array(cost._padded, np.int64),
        cliff=np.array(cliffs, float).reshape(-1, 3),
        cliff_of_request=np.array([cliff.of_request for cliff in cost.cliffs], bool),
        host=Host(overlap=cost.host.overlap, **terms),
    )


def _floats(values) -> np.ndarray:
    return np.array(list(values), float)


def _starts(rows) -> np.ndarray:
    """Where each of the rows begins in their concatenation, and where the last one ends."""
    return np.array([0, *accumulate(len(row) for row in rows)], np.int64)
