"""The verify pass at fixed sizes, so that on CUDA it is captured once and replayed.

Engines capture the target's pass for a list of total token counts and pad every step to the next
one; beyond the last they launch kernel by kernel, a cliff in the cost of a step. Here layers see
the tokens of all trees in one row, padded to such a total, whichever the packing. Attention has
shapes of its own: requests and their largest tree are padded along the same list, cached columns
to multiples of `COLUMNS`. A pass is captured when its four sizes are first met.

Padding tokens write to a column that no mask opens, and padding slots look at one old column, so
that nothing is undefined. Without CUDA the same padded pass runs uncaptured.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import torch
from torch import Tensor

from real_runner.engine.attend import Memo, RaggedAttend, mixed
from real_runner.engine.cache import KVCache
from real_runner.engine.models import LiveTarget
from real_runner.engine.pack import Packed

# Total tokens that vLLM captures by default, up to 512: 1, 2, 4, then steps of 8, later of 16.
GRAPH_SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
COLUMNS = 256
WARM_UP = 2  # passes before a capture: kernels load, libraries choose and allocate
MOST = 256  # graphs kept; the oldest goes
Sizes = tuple[int, int, int, int]  # tokens, requests, slots of the largest tree, columns


def next_size(size: int, sizes: tuple[int, ...]) -> int:
    """The smallest of `sizes` that is at least `size`; `size` itself beyond the last."""
    at = bisect_left(sizes, size)
    return sizes[at] if at < len(sizes) else size


def whole_columns(columns: int) -> int:
    """`columns`, up to the next multiple of `COLUMNS`."""
    return -(-columns // COLUMNS) * COLUMNS


@dataclass(frozen=True, slots=True)
class StaticAttend:
    """Attention of N tokens in one row, of B requests with T slots each; all of fixed size."""

    cache: KVCache
    row: Tensor  # (N,)
    column: Tensor  # (N,)
    slot: Tensor  # (N,)
    source: Tensor  # (B, T) token in every slot, any where there is none
    mask: Tensor  # (B, 1, T, columns)
    memo: Memo = field(default_factory=dict)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        new = (part[0].transpose(0, 1) for part in (key, value))
        self.cache.write(layer, self.row, self.column, *new)
        batch, _, _, columns = self.mask.shape
        placed = query[0].transpose(0, 1)[self.source].transpose(1, 2)  # (B, heads, T, head_dim)
        keys = self.cache.key[layer, :batch, :, :columns]
        values = self.cache.value[layer, :batch, :, :columns]
        out = mixed(placed, keys, values, self.mask, self.memo)
        return out[self.row, :, self.slot].transpose(0, 1)[None]


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Fixed places that a pass of one size reads from; views of shared memory."""

    tokens: Tensor  # (1, N)
    positions: Tensor  # (1, N)
    row: Tensor  # (N,)
    column: Tensor  # (N,)
    slot: Tensor  # (N,)
    source: Tensor  # (B, T)
    mask: Tensor  # (B, 1, T, columns)


class GraphedVerify:
    """Runs packed passes of one target over one cache at fixed sizes.

    Args:
        taps: states that every pass returns.
        sizes: rising totals; longer passes are not covered.
        capture: replay captured graphs; by default on CUDA, where alone they exist.
    """

    def __init__(
        self,
        target: LiveTarget,
        taps: tuple[int, ...],
        cache: KVCache,
        sizes: tuple[int, ...] = GRAPH_SIZES,
        capture: bool | None = None,
    ) -> None:
        self.target, self.taps, self.cache, self.sizes = target, taps, cache, sizes
        self.capture = target.device.type == "cuda" if capture is None else capture
        self._lines = torch.zeros((5, sizes[-1]), dtype=torch.int64, device=target.device)
        wide = target.width * len(taps)
        self._hidden, self._tapped = (
            torch.zeros((1, sizes[-1], width), dtype=target.dtype, device=target.device)
            for width in (target.width, wide)
        )
        self._source = self._lines.new_zeros(0)
        self._mask = self._hidden.new_zeros(0)
        self._graphs: dict[Sizes, tuple[_Inputs, torch.cuda.CUDAGraph]] = {}
        self._pool = None  # memory between layers, the same for all graphs
        self._store = cache.key  # where captured graphs find the cache

    @property
    def captured(self) -> tuple[Sizes, ...]:
        """Sizes met so far that are replayed from now on."""
        return tuple(self._graphs)

    def covers(self, packed: Packed) -> bool:
        """Whether the pass is short enough."""
        return packed.attend.row.numel() <= self.sizes[-1]

    def __call__(self, packed: Packed) -> tuple[Tensor, Tensor]:
        """Final states (1, N, width) and tapped ones of the pass's own N tokens.

        They are overwritten by the next pass.
        """
        sizes = self._sizes(packed)
        self.cache.ensure(sizes[3])
        if self.cache.key is not self._store:  # moved when it grew: graphs would read the old one
            self._graphs, self._store = {}, self.cache.key
        inputs, graph = self._graphs.get(sizes) or (self._inputs(sizes), None)
        self._fill(inputs, packed)
        if graph is not None:
            graph.replay()
        elif self.capture:
            if len(self._graphs) == MOST:
                del self._graphs[next(iter(self._graphs))]
            self._graphs[sizes] = inputs, self._captured(inputs)
        else:
            self._forward(inputs)
        count = packed.attend.row.numel()
        return self._hidden[:, :count], self._tapped[:, :count]

    def _sizes(self, packed: Packed) -> Sizes:
        """Padded sizes; one column more than the pass writes, for padding."""
        batch, _, slots, columns = packed.attend.mask.shape
        rows = self.cache.key.shape[1]
        return (
            next_size(packed.attend.row.numel(), self.sizes),
            min(next_size(batch, self.sizes), rows),  # rows behind the batch are free
            next_size(slots, self.sizes),
            whole_columns(columns + 1),
        )

    def _inputs(self, sizes: Sizes) -> _Inputs:
        """Views of the shared memory, which grows for larger passes; graphs keep the old one."""
        tokens, batch, slots, columns = sizes
        self._source = _grown(self._source, batch * slots)
        self._mask = _grown(self._mask, batch * slots * columns)
        lines = self._lines[:, :tokens]
        return _Inputs(
            lines[0:1],
            lines[1:2],
            *lines[2:],
            self._source[: batch * slots].view(batch, slots),
            self._mask[: batch * slots * columns].view(batch, 1, slots, columns),
        )

    def _fill(self, inputs: _Inputs, packed: Packed) -> None:
        """Put a pass in its place, and padding around it."""
        attend, count = packed.attend, packed.attend.row.numel()
        batch, _, slots, columns = attend.mask.shape
        slot = attend.slot if isinstance(attend, RaggedAttend) else _slots(attend.row, slots)
        parts = (packed.tokens, packed.positions, attend.row, attend.column, slot)
        padding = (0, 0, 0, inputs.mask.shape[3] - 1, 0)
        names = ("tokens", "positions", "row", "column", "slot")
        for name, part, pad in zip(names, parts, padding, strict=True):
            line = getattr(inputs, name).view(-1)
            line[:count] = part.reshape(-1)
            line[count:] = pad
        inputs.source.zero_()
        inputs.source[attend.row, slot] = torch.arange(count, device=slot.device)
        inputs.mask.fill_(float("-inf"))
        inputs.mask[..., 0] = 0  # padding slots
        inputs.mask[:batch, :, :slots, :columns] = attend.mask

    def _forward(self, inputs: _Inputs) -> None:
        attend = StaticAttend(
            self.cache, inputs.row, inputs.column, inputs.slot, inputs.source, inputs.mask
        )
        hidden, tapped = self.target.forward(inputs.tokens, inputs.positions, attend, self.taps)
        count = inputs.tokens.shape[1]
        self._hidden[:, :count] = hidden
        self._tapped[:, :count] = tapped

    def _captured(self, inputs: _Inputs) -> torch.cuda.CUDAGraph:
        """The graph of a pass whose inputs are filled; it has run, too."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                self._forward(inputs)
        torch.cuda.current_stream().wait_stream(aside)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._forward(inputs)
        return graph


def _grown(memory: Tensor, size: int) -> Tensor:
    """`memory` (n,), or new memory where it has no room for `size` numbers."""
    have = memory.numel()
    return memory if have >= size else memory.new_zeros(max(size, 2 * have))


def _slots(row: Tensor, slots: int) -> Tensor:
    """(b * slots,) place of every token of a dense pass among its row's."""
    return torch.arange(len(row), device=row.device) % slots
