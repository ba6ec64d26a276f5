"""Prefill from a table or, without one, from the model's shape and the device's data sheet.

The latter is always `modelled`:

    ms(n) = max(weights, linear * n) + attention * n * (n + 1) / 2
    weights    params * bytes / (bandwidth * GPUs): every weight is read once
    linear     2 * active params / (peak FLOP/s * GPUs * efficiency)
    attention  4 * layers * hidden / (peak FLOP/s * GPUs * efficiency): queries times keys and
               weights times values, each token with all before it. The header has no number of
               query heads; heads * head_dim is taken to be the hidden size.

Calibrated to nothing: an efficiency of a half is what tuned kernels reach on long prompts, and
short prompts reach less.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from simulator.cost.step_time import Source
from traces.common.errors import InputError
from traces.profiles.header import DTYPE_BYTES, ProfileHeader
from traces.profiles.profile import LatencyProfile
from traces.profiles.tables import PrefillRow

_MEASURED, _INTERPOLATED, _MODELLED, _CLAMPED = (int(flag) for flag in Source)


class Prefill:
    """The price of a pass over a prompt, P(tokens), and of its chunks."""

    __slots__ = ()
    last = 0  # largest measured prompt

    @property
    def fixed_ms(self) -> float:
        """What the shortest pass takes: mostly the weights, read once."""
        return self.at(1)

    def at(self, tokens: int) -> float:
        """Milliseconds of a pass over ``tokens``."""
        raise NotImplementedError

    def bits(self, tokens: int) -> int:
        """Source of `at`."""
        raise NotImplementedError

    def alone_ms(self, start: int, tokens: int) -> float:
        """Milliseconds of a prompt's chunk in a pass of its own.

        P(tokens) at the start of the prompt; later P(start + tokens) - P(start), which holds its
        attention to what came before, and the fixed part again, as the weights are read once more.
        A little too much for a chunk long enough to be bound by compute.
        """
        if start == 0:
            return self.at(tokens)
        return max(0.0, self.at(start + tokens) - self.at(start)) + self.fixed_ms

    def together_ms(self, chunks: Sequence[tuple[int, int]], packed: int = 0) -> float:
        """Milliseconds that (start, tokens) chunks add to one pass of `packed` other tokens.

        Each adds P(start + tokens) - max(P(start), fixed), never below 0: without the fixed part,
        as the step's own pass reads the weights. The sum of these, or what one prompt of all their
        tokens would add if that is more: short chunks share what a pass that waits for the weights
        computes meanwhile, and may use it up. A modelled price counts the step's own tokens as
        well. Limits: the step's tokens and the chunks' are priced apart, so a chunk is never padded
        to a captured graph, nor does it push the step out of one.
        """
        fixed_ms = self.fixed_ms
        apart = 0.0
        for start, tokens in chunks:
            before = max(self.at(start), fixed_ms) if start else fixed_ms
            apart += max(0.0, self.at(start + tokens) - before)
        if len(chunks) < 2 and not packed:
            return apart
        total = sum(tokens for _, tokens in chunks)
        own = max(self.at(packed), fixed_ms) if packed else fixed_ms
        return max(apart, self.at(packed + total) - own)


class PrefillCurve(Prefill):
    """Straight lines between measured sizes; below the smallest, its value.

    Beyond the largest the last secant goes on, never falling; a single size has the secant from
    no tokens at no time. Without any row prefill is free, and measured, as it is left out there.
    """

    __slots__ = ("last", "ms", "sizes", "slope_ms")

    def __init__(self, rows: Sequence[PrefillRow]) -> None:
        self.sizes = [row.prompt_tokens for row in rows]
        self.ms = [row.prefill_ms for row in rows]
        sizes, ms = [0, *self.sizes], [0.0, *self.ms]
        self.slope_ms = max(0.0, (ms[-1] - ms[-2]) / (sizes[-1] - sizes[-2])) if rows else 0.0
        self.last = sizes[-1]

    def at(self, tokens: int) -> float:
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

    def bits(self, tokens: int) -> int:
        if tokens > self.last > 0:
            return _MODELLED
        return _MEASURED if not self.sizes or tokens in self.sizes else _INTERPOLATED


class ModelledPrefill(Prefill):
    """The module's formula, in milliseconds.

    Args:
        header: with the shape, data type and device of the target.
        efficiency: share of the peak FLOP/s.

    Raises:
        InputError: naming what the header lacks.
    """

    __slots__ = ("attention_ms", "linear_ms", "weights_ms")

    def __init__(self, header: ProfileHeader, efficiency: float) -> None:
        shape, device = header.model_shape, header.device
        needed = ("layers", "hidden", "params_b", "active_params_b")
        given = {f"model_shape.{name}": getattr(shape, name) for name in needed}
        given |= {f"device.{name}": value for name, value in device}
        given["dtype"] = DTYPE_BYTES.get(header.dtype)
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise InputError(
                f"latency.prefill is 'modelled', but the profile of {header.model} does not know "
                f"{', '.join(missing)}; accepted there: table, none, null"
            )
        flops_per_ms = device.peak_tflops * 1e9 * header.num_gpus * efficiency
        bytes_per_ms = device.bandwidth_gb_s * 1e6 * header.num_gpus
        self.weights_ms = shape.params_b * 1e9 * given["dtype"] / bytes_per_ms
        self.linear_ms = 2 * shape.active_params_b * 1e9 / flops_per_ms
        self.attention_ms = 4 * shape.layers * shape.hidden / flops_per_ms

    def at(self, tokens: int) -> float:
        pairs = tokens * (tokens + 1) / 2
        return max(self.weights_ms, self.linear_ms * tokens) + self.attention_ms * pairs

    def bits(self, tokens: int) -> int:
        return _MODELLED


def prefill_of(
    profile: LatencyProfile, kind: str | None, efficiency: float, strict: bool = False
) -> tuple[str, Prefill]:
    """What prefill is, and its price. None: the profile's table if it has one, else none.

    Raises:
        InputError: a table that the profile lacks, a shape or device that the model lacks, or
            (strict) a model beside measured steps.
    """
    kind = kind or ("table" if profile.prefill else "none")
    if kind == "modelled":
        if strict and not profile.modelled:
            raise InputError(
                f"latency profile {profile.name} (strict): latency.prefill is 'modelled'; accepted "
                "there: table, none, null"
            )
        return kind, ModelledPrefill(profile.header, efficiency)
    if kind == "table" and not profile.prefill:
        raise InputError(
            f"latency.prefill is 'table', but {profile.name} has no prefill table; accepted "
            "there: modelled, none, null"
        )
    return kind, PrefillCurve(profile.prefill if kind == "table" else ())
