"""Attention of a forward pass over the cache: prompts, packed trees, drafted blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from real_runner.engine.cache import KVCache


def mixed(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention with grouped key-value heads; causal without a mask."""
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(
        query, key, value, mask, is_causal=mask is None, enable_gqa=grouped
    )


@dataclass(frozen=True, slots=True)
class PromptAttend:
    """One prompt, from its first token: causal, kept in `row` of the cache."""

    cache: KVCache
    row: int

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        length = key.shape[2]
        self.cache.key[layer, self.row, :, :length] = key[0]
        self.cache.value[layer, self.row, :, :length] = value[0]
        return mixed(query, key, value, None)


@dataclass(frozen=True, slots=True)
class DenseAttend:
    """The first b rows of the cache, t new tokens each, padded to the same t."""

    cache: KVCache
    row: Tensor  # (b * t,)
    column: Tensor  # (b * t,)
    mask: Tensor  # (b, 1, t or 1, columns) added to the scores: 0 or -inf

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        new = (part.transpose(1, 2).flatten(0, 1) for part in (key, value))
        self.cache.write(layer, self.row, self.column, *new)
        batch, columns = len(query), self.mask.shape[3]
        keys = self.cache.key[layer, :batch, :, :columns]
        values = self.cache.value[layer, :batch, :, :columns]
        return mixed(query, keys, values, self.mask)


@dataclass(frozen=True, slots=True)
class RaggedAttend:
    """The first b rows, with as many new tokens each as their tree has: one sequence of N tokens.

    Layers see the N tokens alone; only attention pads them to the largest tree of t tokens.
    """

    cache: KVCache
    row: Tensor  # (N,)
    column: Tensor  # (N,)
    slot: Tensor  # (N,) place of the token among its row's
    mask: Tensor  # (b, 1, t, columns)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        new = (part[0].transpose(0, 1) for part in (key, value))
        self.cache.write(layer, self.row, self.column, *new)
        batch, _, slots, columns = self.mask.shape
        heads, width = query.shape[1], query.shape[3]
        padded = query.new_zeros(batch, slots, heads, width)
        padded[self.row, self.slot] = query[0].transpose(0, 1)
        keys = self.cache.key[layer, :batch, :, :columns]
        values = self.cache.value[layer, :batch, :, :columns]
        out = mixed(padded.transpose(1, 2), keys, values, self.mask)  # (b, heads, t, head_dim)
        return out[self.row, :, self.slot].transpose(0, 1)[None]


@dataclass(frozen=True, slots=True)
class TextAttend:
    """Blocks at n anchors of ONE text whose context is at hand: what a recorder runs."""

    context: list[tuple[Tensor, Tensor]]  # per layer (1, kv_heads, t, head_dim)
    anchor: Tensor  # (n,) positions; a block sees the tokens before its own

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        blocks, heads, slots, width = query.shape
        key, value, old_key, old_value = (
            part.repeat_interleave(heads // part.shape[1], 1) if part.shape[1] != heads else part
            for part in (key, value, *self.context[layer])
        )
        query, key, value = (part.transpose(0, 1)[None] for part in (query, key, value))
        old = (query.flatten(2, 3) @ old_key.mT).unflatten(2, (blocks, slots)) * width**-0.5
        length = old_key.shape[2]
        unseen = torch.arange(length, device=query.device) >= self.anchor[:, None]
        old = old.masked_fill(unseen[:, None], float("-inf"))  # (1, heads, n, slots, t)
        own = query @ key.mT * width**-0.5  # (1, heads, n, slots, slots)
        share = torch.cat([old, own], -1).softmax(-1)
        out = (share[..., :length].flatten(2, 3) @ old_value).unflatten(2, (blocks, slots))
        out = out + share[..., length:] @ value
        return out[0].transpose(0, 1)  # (n, heads, slots, head_dim)
