"""A step's time from data sheets: matrices and attention, each the slower of reading and computing.

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
assumptions, or fitted to measured points (`calibrate`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.profiles.devices import Gpu, ModelShape
from traces.profiles.header import DTYPE_BYTES


@dataclass(frozen=True, slots=True)
class Roofline:
    """The module's formula for one deployment. `read_roofline` checks what it is made of."""

    gpu: Gpu
    model: ModelShape
    tensor_parallel: int = 1
    dtype: str = "bfloat16"
    bandwidth_efficiency: float = 0.8
    compute_efficiency: float = 0.6
    allreduce_us: float = 10.0  # of one, whatever its size
    overhead_ms: float = 0.0  # of every target step
    draft_layers: int = 5
    draft_tokens: int = 16
    calibration: str = ""  # what a fit left over, in words

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
    def added_ms(self) -> float:
        """What every target step pays beside its roofline."""
        return self._allreduce_ms(self.model.layers) + self.overhead_ms

    @property
    def draft_params_b(self) -> float:
        """Billions of the drafter's parameters."""
        return self.model.active_b * self.draft_layers / self.model.layers

    def matrices_ms(self, total) -> tuple[np.ndarray, np.ndarray]:
        """Of reading and of computing, at full efficiency; arrays of any shape."""
        total = np.asarray(total, float)
        read = self._weights_b(total) * 1e9 * self.width / self.tensor_parallel
        read = (read + self.kv_bytes * total) / self.bytes_per_ms
        flops = 2 * self.model.active_b * 1e9 * total / self.tensor_parallel
        return read, flops / self.flops_per_ms

    def attention_ms(self, batch, total, context) -> tuple[np.ndarray, np.ndarray]:
        """Of reading and of computing, at full efficiency; arrays of any shape."""
        model, context = self.model, np.asarray(context, float)
        read = self.kv_bytes * np.asarray(batch) * context / self.bytes_per_ms
        flops = 4 * model.layers * model.heads * model.head_dim * np.asarray(total) * context
        return read, flops / self.tensor_parallel / self.flops_per_ms

    def verify_ms(self, batch, total, context) -> np.ndarray:
        """Target milliseconds, arrays of any shape."""
        attention = self.slower(*self.attention_ms(batch, total, context))
        return self.slower(*self.matrices_ms(total)) + attention + self.added_ms

    def draft_ms(self, batch, context) -> np.ndarray:
        """Drafter milliseconds of one block for every request, arrays of any shape."""
        batch, params = np.asarray(batch, float), self.draft_params_b * 1e9 / self.tensor_parallel
        share = self.draft_layers / self.model.layers
        read = params * self.width / self.bytes_per_ms
        flops = 2 * params * batch * self.draft_tokens / self.flops_per_ms
        attention = self.slower(*self.attention_ms(batch, batch * self.draft_tokens, context))
        return self.slower(read, flops) + share * attention + self._allreduce_ms(self.draft_layers)

    def slower(self, read, compute) -> np.ndarray:
        """The larger of two times at full efficiency, once they have theirs."""
        return np.maximum(read / self.bandwidth_efficiency, compute / self.compute_efficiency)

    def _allreduce_ms(self, layers: int) -> float:
        return 2 * layers * self.allreduce_us * 1e-3 if self.tensor_parallel > 1 else 0.0

    def _weights_b(self, total: np.ndarray) -> np.ndarray:
        """Billions of parameters that a pass of `total` tokens reads."""
        model = self.model
        if model.experts is None:
            return np.full(total.shape, model.params_b)
        share = model.experts_per_token / model.experts
        routed = (model.params_b - model.active_b) / (1 - share)
        return model.params_b - routed * (1 - share) ** total
