"""One-pass block drafters on the target's hidden states.

The context enters every layer as extra keys and values, made from hidden states tapped in the
target at positions strictly before the anchor (DFlash, arXiv 2602.06036). Slots of a block see that
context and one another, in both directions. The semi-autoregressive drafter adds a low-rank Markov
bias of the parent token and a confidence head (DSpark, arXiv 2607.05147).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from real_runner.models.small.config import DrafterConfig, TargetConfig
from real_runner.models.small.layers import (
    RMSNorm,
    SwiGLU,
    merge_heads,
    rope_tables,
    rotate,
    scaled_init,
    split_heads,
)


class BlockAttention(nn.Module):
    """Attention of every block over its own context and itself."""

    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key_value = nn.Linear(config.width, 2 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated keys and values (b, heads, t, head_dim) of x (b, t, width)."""
        key, value = (split_heads(part, self.heads) for part in self.key_value(x).chunk(2, -1))
        return rotate(key, cos, sin), value

    def forward(self, x, cos, sin, context, visible, blocks: int):
        """x (b, blocks * slots, width); context: keys, values (t); visible (b, blocks, t)."""
        query = rotate(split_heads(self.query(x), self.heads), cos, sin)
        key, value = self.keys_values(x, cos, sin)
        query, key, value = (part.unflatten(2, (blocks, -1)) for part in (query, key, value))
        slots = query.shape[3]
        old_key, old_value = context
        scale = query.shape[-1] ** -0.5
        old = (query.flatten(2, 3) @ old_key.mT).unflatten(2, (blocks, slots)) * scale
        old = old.masked_fill(~visible[:, None, :, None], float("-inf"))  # (b, h, n, s, t)
        own = query @ key.mT * scale  # (b, h, n, s, s)
        share = torch.cat([old, own], -1).softmax(-1)
        length = old_key.shape[2]
        mixed = (share[..., :length].flatten(2, 3) @ old_value).unflatten(2, (blocks, slots))
        mixed = mixed + share[..., length:] @ value
        return self.out(merge_heads(mixed.flatten(2, 3)))


class DrafterLayer(nn.Module):
    """Pre-norm block attention and feed-forward."""

    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.norm_attention, self.norm_feed = RMSNorm(config.width), RMSNorm(config.width)
        self.attention = BlockAttention(config)
        self.feed = SwiGLU(config.width, config.feed_forward)

    def forward(self, x, cos, sin, context, visible, blocks: int):
        x = x + self.attention(self.norm_attention(x), cos, sin, context, visible, blocks)
        return x + self.feed(self.norm_feed(x))


class Drafter(nn.Module):
    """Drafts `config.depths` future tokens of many anchors in one pass.

    Embedding and head are the target's; they are passed in, never stored here.
    """

    def __init__(self, config: DrafterConfig, target: TargetConfig):
        super().__init__()
        self.config = config
        self.fuse = nn.Linear(len(config.taps) * target.width, config.width, bias=False)
        self.norm_context = RMSNorm(config.width)
        self.mask = nn.Parameter(torch.randn(config.width) * 0.02)
        self.layers = nn.ModuleList(DrafterLayer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width)
        if config.markov_rank:
            self.markov_in = nn.Embedding(target.vocab_size, config.markov_rank)
            self.markov_out = nn.Embedding(target.vocab_size, config.markov_rank)
            self.confidence = nn.Linear(config.width + config.markov_rank, 1)
        scaled_init(self, config.layers)

    def context(self, taps: Tensor, positions: Tensor | None = None) -> list[tuple[Tensor, Tensor]]:
        """Per layer the keys and values of the context; taps (b, t, len(taps) * width)."""
        fused = self.norm_context(self.fuse(taps))
        if positions is None:
            positions = torch.arange(taps.shape[1], device=taps.device)[None]
        cos, sin = self._rope(positions)
        return [layer.attention.keys_values(fused, cos, sin) for layer in self.layers]

    def forward(
        self,
        embedding: Tensor,  # (vocab, width), the target's
        context: list[tuple[Tensor, Tensor]],
        anchor_token: Tensor,  # (b, n)
        anchor_position: Tensor,  # (b, n)
        visible: Tensor | None = None,  # (b, n, t); tokens strictly before the anchor by default
    ) -> Tensor:
        """Normed hidden states (b, n, depths, width), depth 1 first."""
        batch, blocks = anchor_token.shape
        slots = self.config.block
        if visible is None:
            reach = torch.arange(context[0][0].shape[2], device=anchor_token.device)
            visible = reach < anchor_position[..., None]
        seed = F.embedding(anchor_token, embedding)[:, :, None]  # (b, n, 1, width)
        x = torch.cat([seed, self.mask.expand(batch, blocks, slots - 1, -1)], 2).flatten(1, 2)
        steps = torch.arange(slots, device=anchor_token.device)
        cos, sin = self._rope((anchor_position[..., None] + steps).flatten(1))
        for layer, past in zip(self.layers, context, strict=True):
            x = layer(x, cos, sin, past, visible, blocks)
        x = self.norm(x).unflatten(1, (blocks, slots))
        return x[:, :, 1:] if self.config.kind == "block" else x

    def bias(self, parent: Tensor) -> Tensor:
        """Markov bias (..., vocab) on the logits of the children of parent tokens (...)."""
        return F.linear(self.markov_in(parent), self.markov_out.weight)

    def confidence_logit(self, hidden: Tensor, parent: Tensor) -> Tensor:
        """(...): logit of 1 - TV(q, p) at each depth, before the token is drawn."""
        return self.confidence(torch.cat([hidden, self.markov_in(parent)], -1)).squeeze(-1)

    def _rope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rope_tables(positions, self.config.width // self.config.heads, self.config.rope_base)
