"""The small target: a decoder-only transformer with a KV cache and hidden-state taps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from real_runner.models.small.config import TargetConfig
from real_runner.models.small.layers import (
    RMSNorm,
    SwiGLU,
    merge_heads,
    rope_tables,
    rotate,
    scaled_init,
    split_heads,
)

Cache = list[tuple[Tensor, Tensor]]  # per layer: keys and values (b, heads, t, head_dim)


class Attention(nn.Module):
    """Self-attention over the cache and the new tokens."""

    def __init__(self, config: TargetConfig):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x, cos, sin, mask=None, past=None):
        query, key, value = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        causal = mask is None
        mixed = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)
        return self.out(merge_heads(mixed)), (key, value)


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, config: TargetConfig):
        super().__init__()
        self.norm_attention, self.norm_feed = RMSNorm(config.width), RMSNorm(config.width)
        self.attention = Attention(config)
        self.feed = SwiGLU(config.width, config.feed_forward)

    def forward(self, x, cos, sin, mask=None, past=None):
        mixed, cache = self.attention(self.norm_attention(x), cos, sin, mask, past)
        x = x + mixed
        return x + self.feed(self.norm_feed(x)), cache


class Target(nn.Module):
    """Decoder-only language model; embedding and head are tied."""

    def __init__(self, config: TargetConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width)
        scaled_init(self, config.layers)

    def forward(
        self,
        tokens: Tensor,  # (b, t)
        positions: Tensor | None = None,  # (b or 1, t); 0..t-1 by default
        mask: Tensor | None = None,  # (b or 1, 1, t, past + t) True = attend; causal by default
        past: Cache | None = None,
        taps: tuple[int, ...] = (),
    ) -> tuple[Tensor, Cache, list[Tensor]]:
        """Final normed hidden states (b, t, width), the grown cache, states after tapped layers."""
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        head_dim = self.config.width // self.config.heads
        cos, sin = rope_tables(positions, head_dim, self.config.rope_base)
        x, cache, tapped = self.embedding(tokens), [], []
        for index, block in enumerate(self.blocks):
            x, kept = block(x, cos, sin, mask, None if past is None else past[index])
            cache.append(kept)
            if index + 1 in taps:
                tapped.append(x)
        return self.norm(x), cache, tapped

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) -> (..., vocab)."""
        return F.linear(hidden, self.embedding.weight)
