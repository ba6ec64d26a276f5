"""A roofline as the tables of a latency profile, dense enough to interpolate in.

Exact at these sizes and in the context; between two batches at most 7 % too much, where one of them
is bound by reading and the other by computing."""

from __future__ import annotations

import numpy as np

from simulator.cost.roofline.model import Roofline
from traces.profiles.header import ProfileHeader
from traces.profiles.profile import LatencyProfile
from traces.profiles.tables import DraftRow, VerifyRow

BATCHES = tuple(np.unique(np.rint(2 ** np.arange(0, 9.25, 0.5)).astype(int)).tolist())  # 1 to 512
DRAFTED = tuple(np.unique(np.rint(np.geomspace(1, 512, 64)).astype(int)).tolist())
CONTEXTS = (1, 131072)  # the roofline is a straight line in the context
LAST_TOTAL = 16384  # packed tokens; beyond, the profile's own extension
_STEP = 1.2  # between neighbouring totals; straight lines between them are exact but at the bends


def profile_of(roofline: Roofline) -> LatencyProfile:
    """The tables over batch, context and total packed tokens, all of them modelled."""
    verify = [
        VerifyRow(batch, context, total, ms, captured=False)
        for batch in BATCHES
        for context in CONTEXTS
        for total, ms in _curve(roofline, batch, context)
    ]
    draft = [
        DraftRow(batch, context, float(roofline.draft_ms(batch, context)))
        for batch in DRAFTED
        for context in CONTEXTS
    ]
    return LatencyProfile("roofline", _header(roofline), tuple(verify), tuple(draft))


def _curve(roofline: Roofline, batch: int, context: int) -> list[tuple[int, float]]:
    """Spread totals and those on either side of a bend, with their milliseconds.

    From one token on, fewer than the batch has: neighbouring batches are then read at equal totals.
    """
    every = np.arange(1, LAST_TOTAL + 1)
    bends = []
    for read, compute in (
        roofline.matrices_ms(every),
        roofline.attention_ms(batch, every, context),
    ):
        bound = compute / roofline.compute_efficiency > read / roofline.bandwidth_efficiency
        bends.append(np.flatnonzero(np.diff(bound)))  # indices before a change of sides
    steps = int(np.ceil(np.log(LAST_TOTAL) / np.log(_STEP)))
    spread = np.rint(np.geomspace(1, LAST_TOTAL, steps + 1)).astype(np.int64) - 1
    before = np.concatenate(bends)
    totals = every[np.unique(np.concatenate([spread, before, before + 1]))]
    ms = roofline.verify_ms(batch, totals, context)
    return list(zip(totals.tolist(), ms.tolist(), strict=True))


def _header(roofline: Roofline) -> ProfileHeader:
    gpu, model, parallel = roofline.gpu, roofline.model, roofline.tensor_parallel
    return ProfileHeader(
        hardware=gpu.name if parallel == 1 else f"{parallel} x {gpu.name}",
        num_gpus=parallel,
        model=model.name,
        model_shape={
            "layers": model.layers,
            "hidden": model.hidden,
            "kv_heads": model.kv_heads,
            "head_dim": model.head_dim,
            "params_b": model.params_b,
            "active_params_b": model.active_b,
        },
        dtype=roofline.dtype,
        attention="none timed",
        engine="eager",
        graph_sizes=(),
        timing="not timed: a roofline of data sheets",
        source=f"computed; {gpu.name}: {gpu.source}",
        kind="modelled",
        license="none: computed",
        fixed={},
        device={"peak_tflops": gpu.peak_tflops, "bandwidth_gb_s": gpu.bandwidth_gb_s},
        drafter={
            "params_b": roofline.draft_params_b,
            "tokens_per_request": roofline.draft_tokens,
        },
        notes=_notes(roofline),
    )


def _notes(roofline: Roofline) -> str:
    said = (
        f"Efficiency {roofline.bandwidth_efficiency:.4g} of bandwidth and "
        f"{roofline.compute_efficiency:.4g} of compute, {roofline.overhead_ms:.4g} ms a step"
    )
    if roofline.tensor_parallel > 1:
        said += f", two all-reduces of {roofline.allreduce_us:g} us a layer"
    return f"{said}. {roofline.calibration or 'Assumed, fitted to nothing.'}"
