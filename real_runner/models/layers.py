"""What the small pair and published checkpoints share: rotary positions, layers, the drafter."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from real_runner.engine.models import Attend

Turn = tuple[Tensor, Tensor]  # cosines and sines (b, t, 1, head_dim / 2)


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


class BlockDrafter(nn.Module):
    """A one-pass drafter on the target's hidden states (DFlash, arXiv 2602.06036): `LiveDrafter`.

    The context enters every layer as further keys and values, made from states tapped in the
    target. With a Markov head (DSpark, arXiv 2607.05147) a low-rank bias of the parent token is
    added to the logits, and a confidence head guesses acceptance. Heirs make the layers, and set
    name, sha256, kind, slots, depths, num_layers, kv_heads, head_dim, width and taps.
    """

    fuse: nn.Linear
    norm_context: nn.RMSNorm
    layers: nn.ModuleList
    norm: nn.RMSNorm
    markov_in: nn.Embedding | None  # (V, rank), row of the parent
    markov_out: nn.Embedding | None  # (V, rank), row of the child
    confidence: nn.Linear | None  # of [hidden; markov_in(parent)], or of hidden alone
    embedding: Tensor  # (V, width)
    head: Tensor  # (V, width)

    def turn(self, positions: Tensor) -> Turn:
        """The rotation of positions (b, t)."""
        raise NotImplementedError

    def block(self, anchor_token: Tensor) -> Tensor:
        """What the slots (b, slots, width) of blocks behind anchors (b,) start from."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def markov(self) -> tuple[Tensor, Tensor] | None:
        """Factors (V, rank) by parent and (V, rank) by child, or None."""
        return self.markov_in and (self.markov_in.weight, self.markov_out.weight)

    def context(self, tapped: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """See `LiveDrafter.context`.

        Every layer projects the same fused states: the layers' input norms are not applied to them.
        """
        fused, turn = self.norm_context(self.fuse(tapped)), self.turn(positions)
        return [layer.attention.keys_values(fused, turn) for layer in self.layers]

    def forward(self, anchor_token: Tensor, anchor_position: Tensor, attend: Attend) -> Tensor:
        """See `LiveDrafter.forward`."""
        steps = torch.arange(self.slots, device=anchor_token.device)
        x, turn = self.block(anchor_token), self.turn(anchor_position[:, None] + steps)
        for index, layer in enumerate(self.layers):
            x = layer(x, turn, index, attend)
        return self.norm(x)[:, self.slots - self.depths :]

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) to (..., V), before the Markov bias."""
        return F.linear(hidden, self.head)

    def bias(self, parent: Tensor) -> Tensor:
        """Markov bias (..., V) on the logits of the children of parent tokens (...)."""
        return F.linear(self.markov_in(parent), self.markov_out.weight)

    def confidence_logit(self, hidden: Tensor, parent: Tensor) -> Tensor:
        """(...): logit of the chance below; in training of 1 - TV(q, p)."""
        if self.confidence.in_features > self.width:
            hidden = torch.cat([hidden, self.markov_in(parent)], -1)
        return self.confidence(hidden).squeeze(-1)

    def chance(self, hidden: Tensor, parent: Tensor) -> Tensor | None:
        """See `LiveDrafter.chance`; in float32 or better."""
        if self.confidence is None:
            return None
        logit = self.confidence_logit(hidden, parent)
        return logit.to(torch.promote_types(logit.dtype, torch.float32)).sigmoid()

    def confidence_weights(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """See `LiveDrafter.confidence_weights`; a head on the state alone ignores the parent."""
        if self.confidence is None:
            return None
        weight, bias = self.confidence.weight[0], self.confidence.bias[0]
        state, parent = weight[: self.width], weight[self.width :]
        if not len(parent) and self.markov is not None:
            parent = weight.new_zeros(self.markov[0].shape[1])
        return state, parent, bias
