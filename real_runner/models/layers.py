"""What the small pair and published checkpoints share: rotary positions and layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from real_runner.engine.models import Attend, Turn


def rope(positions: Tensor, rates: Tensor, dtype: torch.dtype, factor: float = 1.0) -> Turn:
    """The turn of positions (b, t) at rates (head_dim / 2,); angles in float32 as in training."""
    angles = positions[..., None, None].float() * rates
    return (angles.cos() * factor).to(dtype), (angles.sin() * factor).to(dtype)


def rotate(x: Tensor, turn: Turn) -> Tensor:
    """x (b, t, heads, head_dim) rotated, as (b, heads, t, head_dim).

    Dimension i pairs with i + head_dim / 2.
    """
    (low, high), (cos, sin) = x.chunk(2, -1), turn
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1).transpose(1, 2)


class Layer(nn.Module):
    """Pre-norm attention and feed-forward.

    attention: has `project`, of x (b, t, width) to rotated queries and keys, and values, all
    (b, heads, t, head_dim), and `out`, the way back.
    """

    def __init__(self, attention: nn.Module, feed: nn.Module, width: int, eps: float = 1e-6):
        super().__init__()
        self.norm_attention = nn.RMSNorm(width, eps)
        self.norm_feed = nn.RMSNorm(width, eps)
        self.attention, self.feed = attention, feed

    def forward(self, x: Tensor, turn: Turn, index: int, attend: Attend) -> Tensor:
        mixed = attend(index, *self.attention.project(self.norm_attention(x), turn))
        x = x + self.attention.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(self.norm_feed(x))
