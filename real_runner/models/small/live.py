"""The small pair as the engine runs it: the same weights, with attention handed out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from real_runner.engine.models import Attend, LivePair
from real_runner.models.small.drafter import Drafter
from real_runner.models.small.generate import BANNED
from real_runner.models.small.layers import merge_heads, rope_tables, rotate, split_heads
from real_runner.models.small.load import Pair
from real_runner.models.small.target import Target
from real_runner.training.text import EOS, encode_prompt

NAME = "specsim-small"
LONGEST = 1024  # positions; trained on rows of 320 tokens
SHORT = {"block": "block", "semi_autoregressive": "semi"}


class SmallTarget:
    """`LiveTarget` of the small target."""

    def __init__(self, model: Target, sha256: str) -> None:
        config = model.config
        self.model, self.name, self.sha256 = model, f"{NAME}-target", sha256
        self.vocab_size, self.width = config.vocab_size, config.width
        self.layers, self.kv_heads = config.layers, config.heads
        self.head_dim = config.width // config.heads
        self.max_positions = LONGEST
        self.eos_tokens, self.banned_tokens = (EOS,), BANNED
        self.embedding = self.head = model.embedding.weight
        self.device, self.dtype = self.embedding.device, self.embedding.dtype

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, taps: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor]:
        """See `LiveTarget.forward`."""
        model, heads = self.model, self.kv_heads
        turn = _rope(positions, self.head_dim, model.config.rope_base, self.dtype)
        x, tapped = model.embedding(tokens), []
        for index, block in enumerate(model.blocks):
            attention = block.attention
            parts = attention.qkv(block.norm_attention(x)).chunk(3, -1)
            query, key, value = (split_heads(part, heads) for part in parts)
            out = attend(index, rotate(query, *turn), rotate(key, *turn), value)
            x = x + attention.out(merge_heads(out))
            x = x + block.feed(block.norm_feed(x))
            if index + 1 in taps:
                tapped.append(x)
        return model.norm(x), torch.cat(tapped, -1) if tapped else x[..., :0]

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) to (..., V)."""
        return self.model.logits(hidden)


class SmallDrafter:
    """`LiveDrafter` of either small drafter."""

    def __init__(self, model: Drafter, target: SmallTarget, sha256: str) -> None:
        config = model.config
        self.model, self.target, self.sha256 = model, target, sha256
        self.kind, self.name = config.kind, f"{NAME}-{SHORT[config.kind]}"
        self.depths, self.slots, self.taps = config.depths, config.block, config.taps
        self.layers, self.kv_heads, self.width = config.layers, config.heads, config.width
        self.head_dim = config.width // config.heads
        self.markov = None
        if config.markov_rank:
            self.markov = (model.markov_in.weight, model.markov_out.weight)

    def context(self, tapped: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """See `LiveDrafter.context`."""
        model = self.model
        fused = model.norm_context(model.fuse(tapped))
        turn = self._turn(positions)
        return [layer.attention.keys_values(fused, *turn) for layer in model.layers]

    def forward(self, anchor_token: Tensor, anchor_position: Tensor, attend: Attend) -> Tensor:
        """See `LiveDrafter.forward`."""
        model, slots = self.model, self.slots
        seed = F.embedding(anchor_token, self.target.embedding)[:, None]  # (b, 1, width)
        x = torch.cat([seed, model.mask.expand(len(seed), slots - 1, -1)], 1)
        steps = torch.arange(slots, device=x.device)
        turn = self._turn(anchor_position[:, None] + steps)
        for index, layer in enumerate(model.layers):
            attention, normed = layer.attention, layer.norm_attention(x)
            query = rotate(split_heads(attention.query(normed), self.kv_heads), *turn)
            out = attend(index, query, *attention.keys_values(normed, *turn))
            x = x + attention.out(merge_heads(out))
            x = x + layer.feed(layer.norm_feed(x))
        x = model.norm(x)
        return x[:, 1:] if self.kind == "block" else x

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) to (..., V), by the target's head."""
        return self.target.logits(hidden)

    def confidence(self, hidden: Tensor, parent: Tensor) -> Tensor | None:
        """(...); None for the block drafter, which has no such head."""
        if self.markov is None:
            return None
        return self.model.confidence_logit(hidden, parent).sigmoid()

    def confidence_weights(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """See `LiveDrafter.confidence_weights`."""
        if self.markov is None:
            return None
        head = self.model.confidence
        return head.weight[0, : self.width], head.weight[0, self.width :], head.bias[0]

    def _turn(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        base = self.model.config.rope_base
        return _rope(positions, self.head_dim, base, self.target.dtype)


def _rope(positions: Tensor, head_dim: int, base: float, dtype: torch.dtype):
    cos, sin = rope_tables(positions, head_dim, base)
    return cos.to(dtype), sin.to(dtype)


class SmallText:
    """`TextCoder` of the small pair."""

    def __init__(self, tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """BOS and the prompt's tokens, trailing spaces dropped."""
        return encode_prompt(self._tokenizer, text)

    def decode(self, tokens: list[int]) -> str:
        """Text of output tokens."""
        return self._tokenizer.decode(list(tokens))


def live_pair(pair: Pair, device: torch.device, dtype: torch.dtype) -> LivePair:
    """`pair`, moved and cast in place, behind the engine's interface."""
    target = SmallTarget(pair.target.to(device, dtype), pair.sha256("target"))
    drafters = {
        kind: SmallDrafter(model.to(device, dtype), target, pair.sha256(kind))
        for kind, model in pair.drafters.items()
    }
    return LivePair(NAME, target, drafters, SmallText(pair.tokenizer))
