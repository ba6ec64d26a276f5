"""A published one-pass drafter as the engine runs it (DFlash and DSpark layouts)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from real_runner.engine.models import LiveDrafter, Turn
from real_runner.models.hub.draft_config import DraftShape
from real_runner.models.layers import Layer, rope, rotate


class HubSwiGLU(nn.Module):
    """Gated feed-forward layer."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Projections(nn.Module):
    """Queries, keys and values with a norm per head, and the way back."""

    def __init__(self, shape: DraftShape):
        super().__init__()
        self.head_dim, width, bias = shape.head_size, shape.hidden_size, shape.attention_bias
        inner, narrow = shape.num_attention_heads * self.head_dim, shape.kv_heads * self.head_dim
        self.query = nn.Linear(width, inner, bias=bias)
        self.key = nn.Linear(width, narrow, bias=bias)
        self.value = nn.Linear(width, narrow, bias=bias)
        self.out = nn.Linear(inner, width, bias=bias)
        self.norm_query = nn.RMSNorm(self.head_dim, shape.rms_norm_eps)
        self.norm_key = nn.RMSNorm(self.head_dim, shape.rms_norm_eps)

    def project(self, x: Tensor, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
        """See `Layer`."""
        query = self.norm_query(self._split(self.query(x)))
        return rotate(query, turn), *self.keys_values(x, turn)

    def keys_values(self, x: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
        """Rotated keys, and values, (b, kv_heads, t, head_dim) of x (b, t, width)."""
        key = rotate(self.norm_key(self._split(self.key(x))), turn)
        return key, self._split(self.value(x)).transpose(1, 2)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim))  # (b, t, heads, head_dim)


class CheckpointDrafter(LiveDrafter):
    """A drafter of either layout; its tables are given to it by `place` when it is loaded."""

    def __init__(self, shape: DraftShape, name: str, sha256: str):
        super().__init__()
        self.shape, self.name, self.sha256 = shape, name, sha256
        self.kind = "semi_autoregressive" if shape.rank else "block"  # block: marginals alone
        self.slots, self.depths, self.taps = shape.block_size, shape.depths, shape.taps
        self.num_layers, self.kv_heads = shape.num_hidden_layers, shape.kv_heads
        self.head_dim, self.width = shape.head_size, shape.hidden_size
        width, inner, eps = shape.hidden_size, shape.intermediate_size, shape.rms_norm_eps
        self.fuse = nn.Linear(len(shape.taps) * width, width, bias=False)
        self.norm_context = nn.RMSNorm(width, eps)
        self.layers = nn.ModuleList(
            Layer(Projections(shape), HubSwiGLU(width, inner), width, eps)
            for _ in range(shape.num_hidden_layers)
        )
        self.norm = nn.RMSNorm(width, eps)
        self.markov_in = self.markov_out = self.confidence = None
        if shape.rank:
            self.markov_in = nn.Embedding(shape.vocab_size, shape.rank)
            self.markov_out = nn.Embedding(shape.vocab_size, shape.rank)
        if shape.confidence_width:
            self.confidence = nn.Linear(shape.confidence_width, 1)

    def place(self, embedding: Tensor, head: Tensor, rates: Tensor, factor: float) -> None:
        """Give it its tables: embedding and head (V, width), rotary rates (head_dim / 2,)."""
        self.embedding, self.head, self.rope_factor = embedding, head, factor
        self.rates = rates.to(embedding.device, torch.float32)
        masks = (self.slots - 1,)
        self.masks = torch.full(masks, self.shape.mask_token_id, device=embedding.device)

    def turn(self, positions: Tensor) -> Turn:
        """See `LiveDrafter.turn`."""
        return rope(positions, self.rates, self.dtype, self.rope_factor)

    def block(self, anchor_token: Tensor) -> Tensor:
        """See `LiveDrafter.block`."""
        masks = self.masks.expand(len(anchor_token), -1)
        return F.embedding(torch.cat([anchor_token[:, None], masks], 1), self.embedding)
