"""Attention of a forward pass over the cache: prompts, packed trees, drafted blocks."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from real_runner.engine.cache import KVCache

Memo = dict[int, Tensor]  # masks of one pass by heads per key-value head


def mixed(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, memo: Memo | None = None
) -> Tensor:
    """Scaled dot-product attention with grouped key-value heads; causal without a mask.

    On CUDA no fused kernel takes a mask and grouped heads together, and the plain one would copy
    the cache for every head: so heads of a group go in as further queries of their shared keys.
    memo: of the pass, so that masks are laid out for this once.
    """
    heads, shared = query.shape[1], key.shape[1]
    if mask is None or heads == shared:
        return F.scaled_dot_product_attention(
            query, key, value, mask, is_causal=mask is None, enable_gqa=heads != shared
        )
    group, slots = heads // shared, query.shape[2]
    memo = {} if memo is None else memo
    if group not in memo:
        memo[group] = _grouped(mask, group)
    query = query.unflatten(1, (shared, group)).flatten(2, 3)  # (b, kv_heads, group * t, head_dim)
    out = F.scaled_dot_product_attention(query, key, value, memo[group])
    return out.unflatten(2, (group, slots)).flatten(1, 2)


def unmasked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Scaled dot-product attention where every query sees every key."""
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=grouped)


def _grouped(mask: Tensor, group: int) -> Tensor:
    """The mask (b, 1, t, columns) of `group` heads, one after another."""
    if mask.stride(2) == 0:  # all slots see the same: nothing to copy
        return mask[:, :, :1].expand(-1, -1, group * mask.shape[2], -1)
    return mask.repeat(1, 1, group, 1)


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
    mask: Tensor  # (b, 1, t, columns) added to the scores: 0 or -inf
    memo: Memo = field(default_factory=dict)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        new = (part.transpose(1, 2).flatten(0, 1) for part in (key, value))
        self.cache.write(layer, self.row, self.column, *new)
        batch, columns = len(query), self.mask.shape[3]
        keys = self.cache.key[layer, :batch, :, :columns]
        values = self.cache.value[layer, :batch, :, :columns]
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
    mask: Tensor  # (b, 1, t, columns)
    memo: Memo = field(default_factory=dict)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        new = (part[0].transpose(0, 1) for part in (key, value))
        self.cache.write(layer, self.row, self.column, *new)
        batch, _, slots, columns = self.mask.shape
        heads, width = query.shape[1], query.shape[3]
        padded = query.new_zeros(batch, slots, heads, width)
        padded[self.row, self.slot] = query[0].transpose(0, 1)
        keys = self.cache.key[layer, :batch, :, :columns]
        values = self.cache.value[layer, :batch, :, :columns]
        out = mixed(padded.transpose(1, 2), keys, values, self.mask, self.memo)
        return out[self.row, :, self.slot].transpose(0, 1)[None]


@dataclass(frozen=True, slots=True)
class ApartAttend:
    """Ragged like `RaggedAttend`, but every row is attended by itself, so nothing is padded.

    For CPUs, where the padding costs more than the calls.
    """

    cache: KVCache
    row: Tensor  # (N,)
    column: Tensor  # (N,)
    first: list[int]  # of b rows, and N
    columns: list[int]  # of b rows
    mask: list[Tensor | None]  # of each row (1, 1, its tokens, its columns); None: sees them all
    memo: list[Memo]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        new = (part[0].transpose(0, 1) for part in (key, value))
        self.cache.write(layer, self.row, self.column, *new)
        keys, values = self.cache.key[layer], self.cache.value[layer]
        parts = []
        for row, (columns, mask) in enumerate(zip(self.columns, self.mask, strict=True)):
            own = query[:, :, self.first[row] : self.first[row + 1]]
            held = (part[row : row + 1, :, :columns] for part in (keys, values))
            if mask is None:
                parts.append(unmasked(own, *held))
            else:
                parts.append(mixed(own, *held, mask, self.memo[row]))
        return torch.cat(parts, 2)


@dataclass(frozen=True, slots=True)
class BlocksApartAttend:
    """Blocks of t tokens in the first b rows, each over all of its row's columns, by itself."""

    cache: KVCache
    row: Tensor  # (b * t,)
    column: Tensor  # (b * t,)
    columns: list[int]  # of b rows

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        new = (part.transpose(1, 2).flatten(0, 1) for part in (key, value))
        self.cache.write(layer, self.row, self.column, *new)
        keys, values = self.cache.key[layer], self.cache.value[layer]
        parts = []
        for row, columns in enumerate(self.columns):
            held = (part[row : row + 1, :, :columns] for part in (keys, values))
            parts.append(unmasked(query[row : row + 1], *held))
        return torch.cat(parts)


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
