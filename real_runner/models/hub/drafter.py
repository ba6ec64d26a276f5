"""A published one-pass drafter as the engine runs it (DFlash and DSpark layouts)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from real_runner.engine.models import Attend
from real_runner.models.hub.draft_config import DraftShape


class HubRMSNorm(nn.Module):
    """Root-mean-square norm with a gain, its statistics in float32 or better."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


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
        inner, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.head_dim = shape.head_dim
        self.query = nn.Linear(shape.width, inner, bias=shape.attention_bias)
        self.key = nn.Linear(shape.width, narrow, bias=shape.attention_bias)
        self.value = nn.Linear(shape.width, narrow, bias=shape.attention_bias)
        self.out = nn.Linear(inner, shape.width, bias=shape.attention_bias)
        self.norm_query = HubRMSNorm(shape.head_dim, shape.norm_eps)
        self.norm_key = HubRMSNorm(shape.head_dim, shape.norm_eps)

    def queries(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotated queries (b, heads, t, head_dim) of x (b, t, width)."""
        return rotate(self.norm_query(self._split(self.query(x))), cos, sin).transpose(1, 2)

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated keys, and values, (b, kv_heads, t, head_dim) of x (b, t, width)."""
        key = rotate(self.norm_key(self._split(self.key(x))), cos, sin)
        return key.transpose(1, 2), self._split(self.value(x)).transpose(1, 2)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim))  # (b, t, heads, head_dim)


class DraftLayer(nn.Module):
    """Pre-norm attention and feed-forward of the block's slots."""

    def __init__(self, shape: DraftShape):
        super().__init__()
        self.norm_attention = HubRMSNorm(shape.width, shape.norm_eps)
        self.norm_feed = HubRMSNorm(shape.width, shape.norm_eps)
        self.attention = Projections(shape)
        self.feed = HubSwiGLU(shape.width, shape.feed_forward)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, layer: int, attend: Attend) -> Tensor:
        inner = self.norm_attention(x)
        query = self.attention.queries(inner, cos, sin)
        mixed = attend(layer, query, *self.attention.keys_values(inner, cos, sin))
        x = x + self.attention.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(self.norm_feed(x))


class CheckpointDrafter(nn.Module):
    """LiveDrafter of either layout; `embedding` and `head` (V, width) are set when it is loaded."""

    embedding: Tensor
    head: Tensor

    def __init__(self, shape: DraftShape, name: str, sha256: str):
        super().__init__()
        self.shape, self.name, self.sha256 = shape, name, sha256
        self.kind, self.slots, self.depths = shape.kind, shape.slots, shape.depths
        self.layers, self.kv_heads, self.head_dim = shape.layers, shape.kv_heads, shape.head_dim
        self.width, self.taps = shape.width, shape.taps
        self.fuse = nn.Linear(len(shape.taps) * shape.width, shape.width, bias=False)
        self.norm_context = HubRMSNorm(shape.width, shape.norm_eps)
        self.stack = nn.ModuleList(DraftLayer(shape) for _ in range(shape.layers))
        self.norm = HubRMSNorm(shape.width, shape.norm_eps)
        if shape.markov_rank:
            self.markov_in = nn.Embedding(shape.vocab_size, shape.markov_rank)
            self.markov_out = nn.Linear(shape.markov_rank, shape.vocab_size, bias=False)
        if shape.confidence_width:
            self.confidence_head = nn.Linear(shape.confidence_width, 1)

    def place(self, embedding: Tensor, head: Tensor, frequencies: Tensor, factor: float) -> None:
        """Give it its tables: embedding and head (V, width), rotary frequencies (head_dim / 2,)."""
        self.embedding, self.head, self.rope_factor = embedding, head, factor
        self.frequencies = frequencies.to(embedding.device, torch.float32)
        self.steps = torch.arange(self.slots, device=embedding.device)
        self.masks = torch.full_like(self.steps[1:], self.shape.mask_token)  # (slots - 1,)

    @property
    def markov(self) -> tuple[Tensor, Tensor] | None:
        """Factors (V, rank) by parent and (V, rank) by child, or None."""
        if not self.shape.markov_rank:
            return None
        return self.markov_in.weight, self.markov_out.weight

    def context(self, tapped: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Per layer the rotated keys and values (b, kv_heads, t, head_dim) of committed tokens.

        tapped (b, t, len(taps) * width), positions (b, t). Every layer projects the same fused
        states: the layers' input norms are not applied to the context.
        """
        fused = self.norm_context(self.fuse(tapped))
        cos, sin = self._rope(positions, fused.dtype)
        return [layer.attention.keys_values(fused, cos, sin) for layer in self.stack]

    def forward(self, anchor_token: Tensor, anchor_position: Tensor, attend: Attend) -> Tensor:
        """Normed states (b, depths, width), depth 1 first, of one block per anchor (b,)."""
        masks = self.masks.expand(len(anchor_token), -1)
        x = F.embedding(torch.cat([anchor_token[:, None], masks], 1), self.embedding)
        cos, sin = self._rope(anchor_position[:, None] + self.steps, x.dtype)
        for number, layer in enumerate(self.stack):
            x = layer(x, cos, sin, number, attend)
        return self.norm(x)[:, self.slots - self.depths :]

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) to (..., V), before the Markov bias."""
        return F.linear(hidden, self.head)

    def confidence(self, hidden: Tensor, parent: Tensor) -> Tensor | None:
        """Acceptance probabilities (...) of drafts after parent tokens (...); None without a head.

        hidden (..., width). The head reads [hidden; W1[parent]] (DSpark, arXiv 2607.05147).
        """
        if not self.shape.confidence_width:
            return None
        if self.shape.confidence_width > self.width:
            hidden = torch.cat([hidden, self.markov_in(parent)], -1)
        logit = self.confidence_head(hidden).squeeze(-1)
        return logit.to(torch.promote_types(logit.dtype, torch.float32)).sigmoid()

    def confidence_weights(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """See `LiveDrafter.confidence_weights`; a head on the state alone ignores the parent."""
        if not self.shape.confidence_width:
            return None
        weight, bias = self.confidence_head.weight[0], self.confidence_head.bias[0]
        state, parent = weight[: self.width], weight[self.width :]
        if not len(parent) and self.markov is not None:
            parent = weight.new_zeros(self.markov[0].shape[1])
        return state, parent, bias

    def _rope(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines (b, t, 1, head_dim / 2), angles in float32 as in training."""
        angles = positions[..., None, None].float() * self.frequencies
        cos, sin = angles.cos() * self.rope_factor, angles.sin() * self.rope_factor
        return cos.to(dtype), sin.to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (b, t, heads, head_dim) rotated; dimension i pairs with i + head_dim / 2."""
    low, high = x.chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)
