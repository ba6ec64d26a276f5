"""Attention of a forward pass: whole texts, packed trees and drafted blocks over the cache."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from real_runner.engine.cache import KVCache
from real_runner.engine.models import LiveTarget

Memo = dict[int, Tensor]  # masks of one pass by heads per key-value head


def mixed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    memo: Memo | None = None,
    causal: bool = False,
) -> Tensor:
    """Scaled dot-product attention with grouped key-value heads.

    On CUDA no fused kernel takes a mask and grouped heads together, and the plain one would copy
    the cache for every head: so heads of a group go in as further queries of their shared keys.
    memo: of the pass, so that masks are laid out for this once.
    """
    heads, shared = query.shape[1], key.shape[1]
    if mask is None or heads == shared:
        return F.scaled_dot_product_attention(
            query, key, value, mask, is_causal=causal, enable_gqa=heads != shared
        )
    group, slots = heads // shared, query.shape[2]
    memo = {} if memo is None else memo
    if group not in memo:
        if mask.stride(2) == 0:  # all slots see the same: nothing to copy
            memo[group] = mask[:, :, :1].expand(-1, -1, group * slots, -1)
        else:
            memo[group] = mask.repeat(1, 1, group, 1)
    query = query.unflatten(1, (shared, group)).flatten(2, 3)  # (b, kv_heads, group * t, head_dim)
    out = F.scaled_dot_product_attention(query, key, value, memo[group])
    return out.unflatten(2, (group, slots)).flatten(1, 2)


def read_whole(target: LiveTarget, tokens: Tensor, taps: tuple[int, ...] = ()):
    """Final and tapped states of whole texts (b, t), nothing cached: see `LiveTarget.forward`."""

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return mixed(query, key, value, causal=True)

    positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
    return target.forward(tokens, positions, attend, taps)


@dataclass(frozen=True, slots=True)
class PromptAttend:
    """One prompt, from its first token: causal, kept in `row` of the cache."""

    cache: KVCache
    row: int

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        length = key.shape[2]
        self.cache.key[layer, self.row, :, :length] = key[0]
        self.cache.value[layer, self.row, :, :length] = value[0]
        return mixed(query, key, value, causal=True)


@dataclass(frozen=True, slots=True)
class DenseAttend:
    """The first b rows of the cache, t new tokens each, padded to the same t."""

    cache: KVCache
    row: Tensor  # (b * t,)
    column: Tensor  # (b * t,)
    mask: Tensor  # (b, 1, t, columns) added to the scores: 0 or -inf
    memo: Memo = field(default_factory=dict)

    @property
    def slot(self) -> Tensor:
        """(b * t,) place of every token among its row's."""
        return torch.arange(len(self.row), device=self.row.device) % self.mask.shape[2]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.cache.write(layer, self.row, self.column, key, value)
        keys, values = self.cache.first(layer, len(query), self.mask.shape[3])
        return mixed(query, keys, values, self.mask, self.memo)


@dataclass(frozen=True, slots=True)
class RaggedAttend:
    """The first b rows, with as many new tokens each as their tree has: one sequence of N tokens.

    Layers see the N tokens alone; only attention pads them to the largest tree of t tokens.
    """

    cache: KVCache
    row: Tensor  # (N,)
    column: Tensor  # (N,)
    slot: Tensor  # (N,) place of the token among its row's
    source: Tensor  # (b, t) token in every slot, any where there is none
    mask: Tensor  # (b, 1, t, columns)
    memo: Memo = field(default_factory=dict)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.cache.write(layer, self.row, self.column, key, value)
        placed = query[0].transpose(0, 1)[self.source].transpose(1, 2)  # (b, heads, t, head_dim)
        keys, values = self.cache.first(layer, len(self.mask), self.mask.shape[3])
        out = mixed(placed, keys, values, self.mask, self.memo)
        return out[self.row, :, self.slot].transpose(0, 1)[None]


@dataclass(frozen=True, slots=True)
class ApartAttend:
    """New tokens of the first b rows, every row attended by itself, so nothing is padded.

    For CPUs, where the padding costs more than the calls. Tokens are one sequence of N, or blocks
    (b, t).
    """

    cache: KVCache
    row: Tensor  # (N,)
    column: Tensor  # (N,)
    count: list[int]  # tokens of b rows
    columns: list[int]  # of b rows
    mask: list[Tensor | None]  # of each row (1, 1, its tokens, its columns); None: sees them all

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.cache.write(layer, self.row, self.column, key, value)
        blocks = len(query)
        one = query.transpose(0, 1).flatten(1, 2)[None] if blocks > 1 else query
        parts, keys, values = [], self.cache.key[layer], self.cache.value[layer]
        for row, own in enumerate(one.split(self.count, 2)):
            held = (part[row : row + 1, :, : self.columns[row]] for part in (keys, values))
            parts.append(mixed(own, *held, self.mask[row]))
        out = torch.cat(parts, 2)
        return out[0].unflatten(1, (blocks, -1)).transpose(0, 1) if blocks > 1 else out


@dataclass(frozen=True, slots=True)
class TextAttend:
    """Blocks at n anchors of each of b texts whose context is at hand: recorders and training."""

    context: list[tuple[Tensor, Tensor]]  # per layer (b, kv_heads, t, head_dim)
    anchor: Tensor  # (b, n) positions; a block sees the tokens before its own

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query, key and value of b * n blocks."""
        heads, slots, width = query.shape[1:]
        key, value, old_key, old_value = (
            part.repeat_interleave(heads // part.shape[1], 1) if part.shape[1] != heads else part
            for part in (key, value, *self.context[layer])
        )
        texts, blocks = self.anchor.shape
        query, key, value = (
            part.unflatten(0, (texts, blocks)).transpose(1, 2) for part in (query, key, value)
        )
        old = (query.flatten(2, 3) @ old_key.mT).unflatten(2, (blocks, slots)) * width**-0.5
        length = old_key.shape[2]
        unseen = torch.arange(length, device=query.device) >= self.anchor[..., None]  # (b, n, t)
        old = old.masked_fill(unseen[:, None, :, None], float("-inf"))  # (b, heads, n, slots, t)
        own = query @ key.mT * width**-0.5  # (b, heads, n, slots, slots)
        share = torch.cat([old, own], -1).softmax(-1)
        out = (share[..., :length].flatten(2, 3) @ old_value).unflatten(2, (blocks, slots))
        out = out + share[..., length:] @ value
        return out.transpose(1, 2).flatten(0, 1)  # (b * n, heads, slots, head_dim)
