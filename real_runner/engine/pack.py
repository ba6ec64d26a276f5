"""Packing draft trees for one target pass: tokens, positions by depth, ancestor masks.

Token 0 of a request is its root, token m + 1 its draft node m. A node sees the cached text, its
ancestors and itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from real_runner.engine.attend import ApartAttend, DenseAttend, RaggedAttend
from real_runner.engine.cache import KVCache, rounded
from simulator.compiling import njit

PACKINGS = ("dense", "ragged")


@dataclass(frozen=True, slots=True)
class Trees:
    """The nodes to verify of b requests, whose root is the last token emitted."""

    root: np.ndarray  # (b,) token
    length: np.ndarray  # (b,) cached tokens before the root, its position
    width: np.ndarray  # (b,) draft nodes
    token: np.ndarray  # (b, M) of draft nodes
    parent: np.ndarray  # (b, M) index of the parent node, -1 the root
    depth: np.ndarray  # (b, M) 1-based
    sampled: float | None = None  # temperature of sampled drafts; None: fixed candidate sets

    def __len__(self) -> int:
        return len(self.root)

    @property
    def slots(self) -> int:
        """Packed tokens of the largest tree."""
        return int(self.width.max()) + 1

    def arranged(self, order: np.ndarray) -> Trees:
        """The same trees with request order[i] in place i."""
        parts = (self.root, self.length, self.width, self.token, self.parent, self.depth)
        return Trees(*(part[order] for part in parts), self.sampled)


@dataclass(frozen=True, slots=True)
class Packed:
    """One pass: tokens and positions (b, t) dense or (1, N) ragged, and its attention."""

    tokens: Tensor
    positions: Tensor
    attend: DenseAttend | RaggedAttend | ApartAttend
    place: np.ndarray | None  # (b,) first token of each request in a ragged pass

    def per_request(self, values: Tensor) -> Tensor:
        """Values (b, t, ...) or (1, N, ...) of the pass as rows in packed order (all, ...)."""
        return values.flatten(0, 1)

    def index(self, request: np.ndarray, slot: np.ndarray) -> np.ndarray:
        """Place of (request, slot) among the rows of `per_request`."""
        if self.place is None:
            return request * self.tokens.shape[1] + slot
        return self.place[request] + slot


def pack(
    trees: Trees, cache: KVCache, packing: str, dtype: torch.dtype, apart: bool = False
) -> Packed:
    """The pass that verifies `trees`; request i is row i of `cache`, which grows if it must.

    apart: in a ragged pass, attend every request's tree by itself.
    """
    slots, device = trees.slots, cache.key.device
    columns = rounded(int(trees.length.max()) + slots)
    cache.ensure(columns)
    tokens, positions, above = layout(trees, slots)
    request, slot = np.divmod(np.arange(len(trees) * slots), slots)
    place = None
    if packing == "ragged":
        real = slot <= trees.width[request]
        request, slot = request[real], slot[real]
        place = np.concatenate([[0], np.cumsum(trees.width + 1)[:-1]])
        tokens, positions = tokens[request, slot][None], positions[request, slot][None]
    row, column, slot, tokens, positions = (
        torch.from_numpy(part).to(device)
        for part in (request, trees.length[request] + slot, slot, tokens, positions)
    )
    if packing == "ragged" and apart:
        length, count = trees.length.astype(np.int64), trees.width.astype(np.int64) + 1
        masks = [_own_mask(*one, dtype) for one in zip(above, length, count, strict=True)]
        ends = (length + count).tolist()
        attend = ApartAttend(cache, row, column, count.tolist(), ends, masks)
    else:
        mask = tree_mask(trees.length, above, columns, device, dtype)
        attend = DenseAttend(cache, row, column, mask)
        if packing == "ragged":
            source = row.new_zeros(len(trees), slots)
            source[row, slot] = torch.arange(len(row), device=device)
            attend = RaggedAttend(cache, row, column, slot, source, mask)
    return Packed(tokens, positions, attend, place)


def layout(trees: Trees, slots: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens and positions (b, t) int64, and which new token sees which (b, t, t) bool."""
    shape = (len(trees), slots)
    tokens, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    above = np.zeros((*shape, slots), np.bool_)
    _fill(
        trees.root.astype(np.int64),
        trees.length.astype(np.int64),
        trees.width.astype(np.int64),
        trees.token,
        trees.parent,
        trees.depth,
        tokens,
        positions,
        above,
    )
    return tokens, positions, above


@njit(cache=True, nogil=True)
def _fill(root, length, width, token, parent, depth, tokens, positions, above):
    for i in range(len(root)):
        tokens[i, 0] = root[i]
        positions[i, :] = length[i]
        above[i, :, 0] = True  # padding sees the root: no empty row
        for m in range(width[i]):
            tokens[i, m + 1] = token[i, m]
            positions[i, m + 1] = length[i] + depth[i, m]
            up = parent[i, m] + 1
            for j in range(up + 1):
                above[i, m + 1, j] = above[i, up, j]
            above[i, m + 1, m + 1] = True


def tree_mask(length: np.ndarray, above: np.ndarray, columns: int, device, dtype) -> Tensor:
    """(b, 1, t, columns) to add to scores: 0 where a token sees a column, -inf elsewhere.

    Made on the device: only lengths (b,) and (b, t, t) bits are copied there.
    """
    start = torch.from_numpy(length).to(device)
    seen = torch.arange(columns, device=device) < start[:, None]  # (b, columns)
    seen = seen[:, None].repeat(1, above.shape[1], 1)
    new = start[:, None] + torch.arange(above.shape[2], device=device)
    new = new[:, None].expand(-1, above.shape[1], -1)
    seen.scatter_(2, new, torch.from_numpy(above).to(device))
    mask = torch.zeros(seen.shape, device=device, dtype=dtype)
    return mask.masked_fill_(~seen, float("-inf"))[:, None]


def _own_mask(above: np.ndarray, length: int, count: int, dtype: torch.dtype) -> Tensor | None:
    """The mask (1, 1, count, length + count) of one tree on the host: a root alone needs none."""
    if count == 1:
        return None
    mask = np.zeros((count, length + count), np.float32)
    mask[:, length:][~above[:count, :count]] = -np.inf
    return torch.from_numpy(mask)[None, None].to(dtype)


def block_attend(
    cache: KVCache, length: np.ndarray, slots: int, dtype: torch.dtype, apart: bool = False
) -> DenseAttend | ApartAttend:
    """Attention of blocks of `slots` tokens behind `length` (b,) columns, all of which they see.

    apart: every block by itself.
    """
    columns, device = rounded(int(length.max()) + slots), cache.key.device
    cache.ensure(columns)
    ends = length + slots
    row = np.repeat(np.arange(len(length)), slots)
    column = (length[:, None] + np.arange(slots)).ravel()
    row, column = (torch.from_numpy(part).to(device) for part in (row, column))
    if apart:
        count, batch = [slots], len(length)
        return ApartAttend(cache, row, column, count * batch, ends.tolist(), [None] * batch)
    seen = torch.arange(columns, device=device) < torch.from_numpy(ends).to(device)[:, None]
    mask = torch.zeros(seen.shape, device=device, dtype=dtype)
    mask = mask.masked_fill_(~seen, float("-inf"))[:, None, None]
    return DenseAttend(cache, row, column, mask.expand(-1, -1, slots, -1))
