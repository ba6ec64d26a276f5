"""The layers that target and drafter share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """Root-mean-square norm with a learned scale."""

    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rope_tables(positions: Tensor, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    """cos and sin for integer positions (..., t), each (..., t, head_dim)."""
    half = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32)
    inverse = base ** (-half / head_dim)  # (head_dim / 2,)
    angle = positions.to(torch.float32)[..., None] * inverse
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position of x (b, heads, t, head_dim); cos and sin (b or 1, t, head_dim)."""
    first, second = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat([-second, first], -1) * sin[:, None]


class SwiGLU(nn.Module):
    """Gated feed-forward layer."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(b, t, width) -> (b, heads, t, head_dim)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(b, heads, t, head_dim) -> (b, t, width)."""
    return x.transpose(1, 2).flatten(2)


def scaled_init(module: nn.Module, layers: int) -> None:
    """GPT-2 style initialisation: 0.02, residual projections divided by sqrt(2 layers)."""
    for name, weight in module.named_parameters():
        if weight.dim() < 2:
            continue
        residual = name.endswith(("out.weight", "down.weight"))
        nn.init.normal_(weight, 0.0, 0.02 / (2 * layers) ** 0.5 if residual else 0.02)
