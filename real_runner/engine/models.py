"""What the engine asks of a target, of a drafter, and of the attention between them.

Models run their own layers; keys and values they hand to `attend`, which keeps them, masks and
mixes. So a model knows nothing of caches, trees or packing, and every model runs under all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn


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


class LiveDrafter(Protocol):
    """A one-pass drafter on the target's hidden states."""

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
    device: torch.device
    dtype: torch.dtype
    markov: tuple[Tensor, Tensor] | None  # (V, r) by parent, (V, r) by child

    def context(self, tapped: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Per layer the rotated keys and values (b, kv_heads, t, head_dim) of committed tokens.

        tapped (b, t, len(taps) * target width), positions (b, t).
        """

    def forward(self, anchor_token: Tensor, anchor_position: Tensor, attend: Attend) -> Tensor:
        """Normed states (b, depths, width), depth 1 first, of one block per anchor (b,).

        Slot i stands at position anchor + i; `attend` shows every slot the context strictly before
        the anchor and the whole block.
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) to (..., V), before the Markov bias."""

    def chance(self, hidden: Tensor, parent: Tensor) -> Tensor | None:
        """That the draft (...) after each state (..., width) and parent token (...) is accepted.

        None without a head for it.
        """

    def confidence_weights(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Weights (width,) and (rank,) and bias () of that probability's logit; or None.

        The logit is ``hidden . state + parent . markov[0][token] + bias``.
        """


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
