"""A latency profile of a device and a model that nobody timed: ``latency=roofline``.

A step's time is that of matrices and attention, each the slower of reading and computing.

Per GPU of `tensor_parallel`, for a step of B requests, T packed tokens in all and c cached tokens
each (b bytes a number, BW and PEAK of one GPU times its efficiency):

    matrices   max((weights(T) * b + kv * T) / BW, 2 * active * T / PEAK)
    attention  c * max(kv * B / BW, 4 * layers * heads * head_dim * T / PEAK)
    verify_s   matrices + attention + 2 * layers * allreduce_s + overhead_s
    kv         2 * layers * kv_heads * head_dim * b, the heads shared out over the GPUs
    weights(T) all of a dense model; of a mixture of experts those that T tokens are expected to
               meet, if they choose experts evenly: shared + routed * (1 - (1 - k / E) ** T)

The two are kernels that run one after the other, so each has a bend of its own. The all-reduces
(two a layer, after attention and after the MLP) are left out on one GPU. The drafter is a block
drafter of `draft_layers` of the target's layers, with that share of its active parameters and of
its cache, and drafts `draft_tokens` tokens for every request in one pass.

A roofline knows no kernels, no graphs and no host. Efficiencies and overhead are stated
assumptions, or fitted to measured points (`_fitted`).
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, model_validator

from traces.common.errors import InputError
from traces.common.settings import Section, above, equal, key, number, read, several, whole
from traces.profiles.devices import find_gpu, find_model
from traces.profiles.header import DTYPE_BYTES, ProfileHeader
from traces.profiles.profile import LatencyProfile
from traces.profiles.tables import DraftRow, VerifyRow, read_cells, require

ROOFLINE = "roofline"
_WHERE = f"latency.{ROOFLINE}."
Share, Time = above(0, 1), number(0, 1e6)


class RooflineSettings(Section):
    """A device and a model by their data sheets; gpu and model become `Gpu` and `ModelShape`."""

    PREFIX: ClassVar[str] = _WHERE

    gpu: Annotated[Any, AfterValidator(partial(find_gpu, key=f"{_WHERE}gpu"))] = key(
        help="a name of traces/profiles/gpus.yaml (h100-sxm as well), or "
        "{peak_tflops: .., bandwidth_gb_s: ..}",
        accepted="a name, or a mapping",
    )
    model: Annotated[Any, AfterValidator(partial(find_model, key=f"{_WHERE}model"))] = key(
        help="a name of traces/profiles/models.yaml, or a mapping of its numbers",
        accepted="a name, or a mapping",
    )
    tensor_parallel: whole(1, 1024) = 1
    dtype: Literal[tuple(DTYPE_BYTES)] = key(
        "bfloat16", "of weights and cache; computing stays at the device's given peak"
    )
    bandwidth_efficiency: Share = key(0.8, "assumed")
    compute_efficiency: Share = key(0.6, "assumed")
    allreduce_us: Time = key(
        10.0,
        "assumed, of each of two all-reduces a layer; more than one GPU",
        counts=(several("latency.roofline.tensor_parallel"),),
    )
    overhead_ms: Time = key(
        0.0,
        "of every target step",
        counts=(equal("latency.roofline.calibrate", None, ", which else fits it"),),
    )
    draft_layers: whole(1, 1000) = key(5, "block drafter: so many of the target's layers")
    draft_tokens: whole(1, 32_766) = key(16, "tokens it drafts for a request")
    calibrate: Any = key(
        None,
        "CSV of batch,packed_tokens_total,kv_prefix_tokens,verify_ms: fits efficiencies and "
        "overhead",
    )

    @model_validator(mode="after")
    def _together(self) -> RooflineSettings:
        if self.draft_layers > self.model.layers:
            most = f"up to {self.model.layers}, the layers of {self.model.name}"
            self.refuse("draft_layers", most)
        return self


class Roofline(RooflineSettings):
    """The module's formula for one deployment. calibration: what a fit left over, in words."""

    calibration: str = ""

    @property
    def width(self) -> int:
        """Bytes of one number."""
        return DTYPE_BYTES[self.dtype]

    @property
    def kv_bytes(self) -> float:
        """Of one token on one GPU."""
        return self.model.kv_bytes(self.width, self.tensor_parallel)

    @property
    def bytes_per_ms(self) -> float:
        """Of one GPU, at full bandwidth."""
        return self.gpu.bandwidth_gb_s * 1e6

    @property
    def flops_per_ms(self) -> float:
        """Of one GPU, at its peak."""
        return self.gpu.peak_tflops * 1e9

    @property
    def draft_params_b(self) -> float:
        """Billions of the drafter's parameters."""
        return self.model.active_b * self.draft_layers / self.model.layers

    def allreduce_ms(self, layers: int) -> float:
        """Of a pass through so many layers."""
        return 2 * layers * self.allreduce_us * 1e-3 if self.tensor_parallel > 1 else 0.0

    def matrices_ms(self, total) -> tuple[np.ndarray, np.ndarray]:
        """Of reading and of computing, at full efficiency; arrays of any shape."""
        model, total = self.model, np.asarray(total, float)
        read_b = np.full(total.shape, model.params_b)  # billions of parameters
        if model.experts is not None:
            share = model.experts_per_token / model.experts
            routed = (model.params_b - model.active_b) / (1 - share)
            read_b = model.params_b - routed * (1 - share) ** total
        read = read_b * 1e9 * self.width / self.tensor_parallel
        read = (read + self.kv_bytes * total) / self.bytes_per_ms
        flops = 2 * model.active_b * 1e9 * total / self.tensor_parallel
        return read, flops / self.flops_per_ms

    def attention_ms(self, batch, total, context) -> tuple[np.ndarray, np.ndarray]:
        """Of reading and of computing, at full efficiency; arrays of any shape."""
        model, context = self.model, np.asarray(context, float)
        read = self.kv_bytes * np.asarray(batch) * context / self.bytes_per_ms
        flops = 4 * model.layers * model.heads * model.head_dim * np.asarray(total) * context
        return read, flops / self.tensor_parallel / self.flops_per_ms

    def slower(self, read, compute) -> np.ndarray:
        """The larger of two times at full efficiency, once they have theirs."""
        return np.maximum(read / self.bandwidth_efficiency, compute / self.compute_efficiency)

    def verify_ms(self, batch, total, context) -> np.ndarray:
        """Target milliseconds, arrays of any shape."""
        attention = self.slower(*self.attention_ms(batch, total, context))
        added_ms = self.allreduce_ms(self.model.layers) + self.overhead_ms
        return self.slower(*self.matrices_ms(total)) + attention + added_ms

    def draft_ms(self, batch, context) -> np.ndarray:
        """Drafter milliseconds of one block for every request, arrays of any shape."""
        batch, params = np.asarray(batch, float), self.draft_params_b * 1e9 / self.tensor_parallel
        share = self.draft_layers / self.model.layers
        read = params * self.width / self.bytes_per_ms
        flops = 2 * params * batch * self.draft_tokens / self.flops_per_ms
        attention = self.slower(*self.attention_ms(batch, batch * self.draft_tokens, context))
        return self.slower(read, flops) + share * attention + self.allreduce_ms(self.draft_layers)


def read_roofline(node: Any) -> Roofline:
    """The roofline of a configuration, fitted to the points it names under ``calibrate``.

    Args:
        node: `RooflineSettings`, or a mapping of them.

    Raises:
        InputError: an unknown key, or a value that is not accepted.
    """
    settings = node if isinstance(node, RooflineSettings) else read(RooflineSettings, node)
    given = {name: getattr(settings, name) for name in RooflineSettings.model_fields}
    roofline = Roofline(**given)
    return roofline if settings.calibrate is None else _calibrated(roofline, settings.calibrate)


# ---------------- Fitted to measured steps.

_COLUMNS = ("batch", "packed_tokens_total", "kv_prefix_tokens", "verify_ms")
_LEAST = 0.02  # efficiency
_MOST = 5000  # points: the grid is gone through with all of them
_FEWEST = 3  # points: as many as there are numbers to fit


def _calibrated(roofline: Roofline, path: Any) -> Roofline:
    """The roofline that fits the points of a file best, with what it leaves over in words.

    Raises:
        InputError: see `_read_points`.
    """
    if not isinstance(path, str | Path):
        raise InputError(f"latency.roofline.calibrate is {path!r}; accepted: a path to a CSV, null")
    *steps, ms = _read_points(path)
    fitted, kept = _fitted(roofline, *steps, ms)
    off = np.abs(fitted.verify_ms(*steps) / ms - 1)
    text = (
        f"Fitted to {len(ms)} points of {path}: off by {np.median(off):.1%} in the median and "
        f"{off.max():.1%} at most"
    )
    notes = [f"{side} efficiency kept, no point depends on it" for side in kept]
    return fitted.with_(calibration="; ".join([text, *notes]) + ".")


def _read_points(path: str | Path) -> np.ndarray:
    """A CSV of ``batch, packed_tokens_total, kv_prefix_tokens, verify_ms``, as (4, n).

    Raises:
        InputError: naming file, row, column, value and what is accepted, or too few rows.
    """
    path = Path(path)
    columns, cells = read_cells(path)
    require(path, columns, _COLUMNS)
    rows = [
        (*(cell.size(name) for name in _COLUMNS[:3]), cell.time_ms("verify_ms")) for cell in cells
    ]
    for cell, (batch, total, *_) in zip(cells, rows, strict=True):
        if total < batch:
            cell.refuse("packed_tokens_total", f"at least {batch}, one token for each request")
    if not _FEWEST <= len(rows) <= _MOST:
        raise InputError(f"{path}: {len(rows)} rows; accepted: at least {_FEWEST}, at most {_MOST}")
    return np.array(rows, float).T


def _fitted(
    roofline: Roofline, batch: np.ndarray, total: np.ndarray, context: np.ndarray, ms: np.ndarray
) -> tuple[Roofline, list[str]]:
    """The best roofline for (n,) measured steps, and which efficiency none of them depends on.

    Least squares on log milliseconds, with efficiencies from `_LEAST` to 1 and an overhead from 0
    to the shortest step, from the best point of a grid on. What no step depends on (the compute of
    steps that are all bound by memory) keeps the value that was given.
    """
    from scipy.optimize import least_squares

    kernels = [roofline.matrices_ms(total), roofline.attention_ms(batch, total, context)]
    read, compute = np.array(kernels).swapaxes(0, 1)  # (kernel, n) each, at full efficiency
    fixed_ms = roofline.allreduce_ms(roofline.model.layers)

    def off(x: np.ndarray) -> np.ndarray:
        """(n,) logarithms at x: inverse efficiencies of reading and computing, overhead."""
        slower = np.maximum(read * x[0], compute * x[1])
        return np.log((slower.sum(axis=0) + fixed_ms + x[2]) / ms)

    slowness = np.geomspace(1, 1 / _LEAST, 24)
    grid = product(slowness, slowness, np.linspace(0, 0.95 * ms.min(), 8))
    start = min((np.array(x) for x in grid), key=lambda x: np.sum(off(x) ** 2))
    bounds = [1.0, 1.0, 0.0], [1 / _LEAST, 1 / _LEAST, ms.min()]
    close = dict.fromkeys(("ftol", "xtol", "gtol"), 1e-15)
    best = least_squares(off, start, bounds=bounds, method="dogbox", **close).x
    reads = read * best[0] >= compute * best[1]
    values, kept = {"overhead_ms": float(best[2])}, []
    for side, name, used in ((0, "bandwidth", reads), (1, "compute", ~reads)):
        if used.any():
            values[f"{name}_efficiency"] = float(1 / best[side])
        else:
            kept.append(name)
    return roofline.with_(**values), kept


# ---------------- As a profile.

# The tables are exact at these sizes and in the context, in which the roofline is a straight line;
# between two batches at most 7 % too much, where one of them is bound by reading and the other by
# computing.
BATCHES = tuple(np.unique(np.rint(2 ** np.arange(0, 9.25, 0.5)).astype(int)).tolist())  # 1 to 512
DRAFTED = tuple(np.unique(np.rint(np.geomspace(1, 512, 64)).astype(int)).tolist())
CONTEXTS = (1, 131072)
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
    for read_ms, compute_ms in (
        roofline.matrices_ms(every),
        roofline.attention_ms(batch, every, context),
    ):
        bound = compute_ms / roofline.compute_efficiency > read_ms / roofline.bandwidth_efficiency
        bends.append(np.flatnonzero(np.diff(bound)))  # indices before a change of sides
    steps = int(np.ceil(np.log(LAST_TOTAL) / np.log(_STEP)))
    spread = np.rint(np.geomspace(1, LAST_TOTAL, steps + 1)).astype(np.int64) - 1
    before = np.concatenate(bends)
    totals = every[np.unique(np.concatenate([spread, before, before + 1]))]
    ms = roofline.verify_ms(batch, totals, context)
    return list(zip(totals.tolist(), ms.tolist(), strict=True))


def _header(roofline: Roofline) -> ProfileHeader:
    gpu, model, parallel = roofline.gpu, roofline.model, roofline.tensor_parallel
    notes = (
        f"Efficiency {roofline.bandwidth_efficiency:.4g} of bandwidth and "
        f"{roofline.compute_efficiency:.4g} of compute, {roofline.overhead_ms:.4g} ms a step"
    )
    if parallel > 1:
        notes += f", two all-reduces of {roofline.allreduce_us:g} us a layer"
    shape = {name: getattr(model, name) for name in ("layers", "hidden", "kv_heads", "head_dim")}
    return ProfileHeader(
        hardware=gpu.name if parallel == 1 else f"{parallel} x {gpu.name}",
        num_gpus=parallel,
        model=model.name,
        model_shape=shape | {"params_b": model.params_b, "active_params_b": model.active_b},
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
        drafter={"params_b": roofline.draft_params_b, "tokens_per_request": roofline.draft_tokens},
        notes=f"{notes}. {roofline.calibration or 'Assumed, fitted to nothing.'}",
    )
