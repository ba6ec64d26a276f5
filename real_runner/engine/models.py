"""What the engine asks of a target, of a drafter, and of the attention between them.

Models run their own layers; keys and values they hand to `attend`, which keeps them, masks and
mixes. So a model knows nothing of caches, trees or packing, and every model runs under all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Turn = tuple[Tensor, Tensor]  # cosines and sines (b, t, 1, head_dim / 2)


class Attend(Protocol):
    """Attention of one forward pass over what is cached and what is new."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Mixed values (b, heads, t, head_dim).

        query (b, heads, t, head_dim); key and value (b, kv_heads, t, head_dim) of the new tokens
        alone, already rotated; kv_heads divides heads.
        """


class LiveTarget(Protocol):
    """A decoder-only language model."""

    name: str
    sha256: str
    vocab_size: int
    num_layers: int
    kv_heads: int
    head_dim: int
    width: int  # hidden size
    max_positions: int
    eos_tokens: tuple[int, ...]
    banned_tokens: tuple[int, ...]  # never emitted, never drafted
    device: torch.device
    dtype: torch.dtype
    embedding: nn.Embedding  # (V, width)
    head: Tensor  # (V, width)

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, taps: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor]:
        """Final normed states (b, t, width) and tapped ones (b, t, len(taps) * width).

        tokens, positions (b, t). Tap i is the state after the i-th layer, 1-based.
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) to (..., V); banned tokens are not removed."""


class LiveDrafter(nn.Module):
    """A one-pass drafter on the target's hidden states (DFlash, arXiv 2602.06036).

    The context enters every layer as further keys and values, made from states tapped in the
    target. With a Markov head (DSpark, arXiv 2607.05147) a low-rank bias of the parent token is
    added to the logits, and a confidence head guesses acceptance. Heirs set all that stands here.
    """

    name: str
    sha256: str
    kind: str  # block (in place) or semi_autoregressive (shifted, Markov head)
    depths: int  # future tokens one pass predicts
    slots: int  # tokens of one block
    num_layers: int
    kv_heads: int
    head_dim: int
    width: int
    taps: tuple[int, ...]
    fuse: nn.Linear  # of the taps
    norm_context: nn.Module
    layers: nn.ModuleList
    norm: nn.Module
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
        """Per layer the rotated keys and values (b, kv_heads, t, head_dim) of committed tokens.

        tapped (b, t, len(taps) * target width), positions (b, t). Every layer projects the same
        fused states: the layers' input norms are not applied to them.
        """
        fused, turn = self.norm_context(self.fuse(tapped)), self.turn(positions)
        return [layer.attention.keys_values(fused, turn) for layer in self.layers]

    def forward(self, anchor_token: Tensor, anchor_position: Tensor, attend: Attend) -> Tensor:
        """Normed states (b, depths, width), depth 1 first, of one block per anchor (b,).

        Slot i stands at position anchor + i; `attend` shows every slot the context strictly before
        the anchor and the whole block.
        """
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
        """That the draft (...) after each state (..., width) and parent token (...) is accepted.

        In float32 or better; None without a head for it.
        """
        if self.confidence is None:
            return None
        logit = self.confidence_logit(hidden, parent)
        return logit.to(torch.promote_types(logit.dtype, torch.float32)).sigmoid()

    def confidence_weights(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Weights (width,) and (rank,) and bias () of that chance's logit; None without a head.

        The logit is ``hidden . state + parent . markov[0][token] + bias``; a head on the state
        alone ignores the parent.
        """
        if self.confidence is None:
            return None
        weight, bias = self.confidence.weight[0], self.confidence.bias[0]
        state, parent = weight[: self.width], weight[self.width :]
        if not len(parent) and self.markov is not None:
            parent = weight.new_zeros(self.markov[0].shape[1])
        return state, parent, bias


class TextCoder(Protocol):
    """Text to tokens and back."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt, with whatever the model expects before it."""

    def decode(self, tokens: list[int]) -> str:
        """Text of output tokens."""


@dataclass(frozen=True, slots=True)
class LivePair:
    """A target, its drafters by kind, and their tokenizer."""

    name: str
    target: LiveTarget
    drafters: dict[str, LiveDrafter]
    tokenizer: TextCoder
