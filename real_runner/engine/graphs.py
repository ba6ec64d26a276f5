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

import torch
from torch import Tensor

from real_runner.engine.attend import RaggedAttend
from real_runner.engine.cache import KVCache, rounded
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
        self._graphs: dict[Sizes, tuple[Packed, torch.cuda.CUDAGraph]] = {}
        self._pool = None  # memory between layers, the same for all graphs
        self._store = cache.key  # where captured graphs find the cache

    @property
    def captured(self) -> tuple[Sizes, ...]:
        """Sizes met so far that are replayed from now on."""
        return tuple(self._graphs)

    def covers(self, packed: Packed) -> bool:
        """Whether the pass is short enough."""
        return len(packed.attend.row) <= self.sizes[-1]

    def __call__(self, packed: Packed) -> tuple[Tensor, Tensor]:
        """Final states (1, N, width) and tapped ones of the pass's own N tokens.

        They are overwritten by the next pass.
        """
        attend, cache = packed.attend, self.cache
        batch, _, slots, columns = attend.mask.shape
        sizes = (
            next_size(len(attend.row), self.sizes),
            min(next_size(batch, self.sizes), cache.key.shape[1]),  # rows behind the batch are free
            next_size(slots, self.sizes),
            rounded(columns + 1, COLUMNS),  # one more than the pass writes, for padding
        )
        cache.ensure(sizes[3])
        if cache.key is not self._store:  # moved when it grew: graphs would read the old one
            self._graphs, self._store = {}, cache.key
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
        return self._hidden[:, : len(attend.row)], self._tapped[:, : len(attend.row)]

    def _inputs(self, sizes: Sizes) -> Packed:
        """A pass of fixed size: views of shared memory, which grows; graphs keep the old one."""
        tokens, batch, slots, columns = sizes
        self._source = _grown(self._source, batch * slots)
        self._mask = _grown(self._mask, batch * slots * columns)
        token, position, row, column, slot = self._lines[:, :tokens]
        source = self._source[: batch * slots].view(batch, slots)
        mask = self._mask[: batch * slots * columns].view(batch, 1, slots, columns)
        attend = RaggedAttend(self.cache, row, column, slot, source, mask)
        return Packed(token[None], position[None], attend, None)

    def _fill(self, inputs: Packed, packed: Packed) -> None:
        """Put a pass in its place, and padding around it."""
        attend, count = packed.attend, len(packed.attend.row)
        batch, _, slots, columns = attend.mask.shape
        to, slot = inputs.attend, attend.slot
        for line, part, pad in (
            (inputs.tokens.view(-1), packed.tokens, 0),
            (inputs.positions.view(-1), packed.positions, 0),
            (to.row, attend.row, 0),
            (to.column, attend.column, to.mask.shape[3] - 1),
            (to.slot, slot, 0),
        ):
            line[:count] = part.reshape(-1)
            line[count:] = pad
        to.source.zero_()
        to.source[attend.row, slot] = torch.arange(count, device=slot.device)
        to.mask.fill_(float("-inf"))
        to.mask[..., 0] = 0  # padding slots
        to.mask[:batch, :, :slots, :columns] = attend.mask

    def _forward(self, inputs: Packed) -> None:
        hidden, tapped = self.target.forward(
            inputs.tokens, inputs.positions, inputs.attend, self.taps
        )
        count = inputs.tokens.shape[1]
        self._hidden[:, :count] = hidden
        self._tapped[:, :count] = tapped
        inputs.attend.memo.clear()  # the next pass has other masks; a graph keeps what it captured

    def _captured(self, inputs: Packed) -> torch.cuda.CUDAGraph:
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
