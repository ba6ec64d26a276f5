"""Packing draft trees for one target pass: tokens, positions by depth, ancestor masks.

Token 0 of a request is its root, token m + 1 its draft node m. A node sees the cached text, its
ancestors and itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from real_runner.engine.attend import ApartAttend, BlocksApartAttend, DenseAttend, RaggedAttend
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
    row, column, slot = (
        torch.from_numpy(part).to(device) for part in (request, trees.length[request] + slot, slot)
    )
    if packing == "ragged" and apart:
        attend = _apart(trees, cache, above, row, column, dtype)
    elif packing == "ragged":
        mask = _mask(trees, above, columns, device, dtype)
        attend = RaggedAttend(cache, row, column, slot, mask)
    else:
        attend = DenseAttend(cache, row, column, _mask(trees, above, columns, device, dtype))
    tokens, positions = (torch.from_numpy(part).to(device) for part in (tokens, positions))
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


def _mask(trees: Trees, above: np.ndarray, columns: int, device, dtype) -> Tensor:
    """(b, 1, t, columns) to add to scores: 0 where a token sees a column, -inf elsewhere."""
    length = np.ascontiguousarray(trees.length, np.int64)
    if device.type == "cpu":
        kind = np.float64 if dtype == torch.float64 else np.float32
        mask = np.full((*above.shape[:2], columns), -np.inf, kind)
        _open(mask, above, length)
        return torch.from_numpy(mask)[:, None].to(dtype)
    return device_mask(length, above, columns, device, dtype)


def device_mask(length: np.ndarray, above: np.ndarray, columns: int, device, dtype) -> Tensor:
    """The same mask, made on the device: only (b, t, t) bits are copied there."""
    start = torch.from_numpy(length).to(device)
    seen = torch.arange(columns, device=device) < start[:, None]  # (b, columns)
    seen = seen[:, None].repeat(1, above.shape[1], 1)
    new = start[:, None] + torch.arange(above.shape[2], device=device)
    new = new[:, None].expand(-1, above.shape[1], -1)
    seen.scatter_(2, new, torch.from_numpy(above).to(device))
    mask = torch.zeros(seen.shape, device=device, dtype=dtype)
    return mask.masked_fill_(~seen, float("-inf"))[:, None]


@njit(cache=True, nogil=True)
def _open(mask, above, length):
    for i in range(mask.shape[0]):
        for m in range(mask.shape[1]):
            mask[i, m, : length[i]] = 0.0
            for j in range(above.shape[2]):
                if above[i, m, j]:
                    mask[i, m, length[i] + j] = 0.0


def _apart(trees: Trees, cache: KVCache, above: np.ndarray, row, column, dtype) -> ApartAttend:
    """Every request by itself: a root alone needs no mask."""
    kind = np.float64 if dtype == torch.float64 else np.float32
    length, packed = trees.length.astype(np.int64), trees.width.astype(np.int64) + 1
    first = np.concatenate([[0], np.cumsum(packed)]).tolist()
    columns = (length + packed).tolist()
    masks: list[Tensor | None] = []
    for i, (count, wide) in enumerate(zip(packed.tolist(), columns, strict=True)):
        if count == 1:
            masks.append(None)
            continue
        mask = np.full((1, count, wide), -np.inf, kind)
        _open(mask, above[i : i + 1, :count, :count], length[i : i + 1])
        masks.append(torch.from_numpy(mask)[None].to(dtype))
    return ApartAttend(cache, row, column, first, columns, masks, [{} for _ in masks])


def block_attend(
    cache: KVCache, length: np.ndarray, slots: int, dtype: torch.dtype, apart: bool = False
) -> DenseAttend | BlocksApartAttend:
    """Attention of blocks of `slots` tokens behind `length` (b,) columns, all of which they see.

    apart: every block by itself.
    """
    columns, device = rounded(int(length.max()) + slots), cache.key.device
    cache.ensure(columns)
    row = np.repeat(np.arange(len(length)), slots)
    column = (length[:, None] + np.arange(slots)).ravel()
    row, column = (torch.from_numpy(part).to(device) for part in (row, column))
    if apart:
        return BlocksApartAttend(cache, row, column, (length + slots).tolist())
    ends = torch.from_numpy(length + slots).to(device)
    seen = torch.arange(columns, device=device) < ends[:, None]
    mask = torch.zeros(seen.shape, device=device, dtype=dtype)
    mask = mask.masked_fill_(~seen, float("-inf"))[:, None, None]
    return DenseAttend(cache, row, column, mask.expand(-1, -1, slots, -1))
