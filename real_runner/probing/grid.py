"""What is measured: steps by batch, cached prefix and packed tokens, and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

EDGES = (16, 64, 128)  # tile sizes of matrix kernels: cost may jump behind their multiples
MULTIPLES = 8  # of each edge; further ones stand close together for the size they have


@dataclass(frozen=True, slots=True, order=True)
class StepCell:
    """A step of `batch` requests with `prefix` cached tokens each, `total` packed tokens in all."""

    batch: int
    prefix: int
    total: int

    @property
    def drafts(self) -> bool:
        """False for one token per request: plain decoding."""
        return self.total > self.batch

    @property
    def packed(self) -> np.ndarray:
        """(batch,) tokens of every request, at most one apart."""
        return self.total // self.batch + (np.arange(self.batch) < self.total % self.batch)

    def __str__(self) -> str:
        return f"batch {self.batch}, prefix {self.prefix}, {self.total} packed tokens"


@dataclass(frozen=True, slots=True, order=True)
class PrefillCell:
    """A prompt of `tokens`."""

    tokens: int

    def __str__(self) -> str:
        return f"a prompt of {self.tokens} tokens"


Cell = StepCell | PrefillCell


def fits_in(small: Cell, large: Cell) -> bool:
    """Whether `large` is the same kind of work and at least as much of it."""
    *kind, size = astuple(small)
    *other, most = astuple(large)
    return kind == other and size <= most


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds measured of one cell: one entry per timed step, or per prompt."""

    verify_s: tuple[float, ...] = ()
    draft_s: tuple[float, ...] = ()  # none where nothing is drafted
    prefill_s: tuple[float, ...] = ()

    def __add__(self, other: Samples) -> Samples:
        return Samples(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Grid:
    """What to cover; every batch meets every prefix."""

    batches: tuple[int, ...]
    packed_per_request: tuple[int, ...]  # root and draft nodes; 1 is plain decoding
    prefixes: tuple[int, ...]
    prompt_tokens: tuple[int, ...] = ()
    edges: bool = False  # also the totals on either side of where cost may jump
    edge_tokens: int = 1024  # the largest of those totals


def cells_of(grid: Grid, packing: str, graph_sizes: Sequence[int] = ()) -> list[Cell]:
    """Every cell once, sorted; dense passes pad, so they only have multiples of the batch."""
    steps = [
        StepCell(batch, prefix, total)
        for batch in sorted(grid.batches)
        for prefix in sorted(grid.prefixes)
        for total in _totals(grid, batch, packing == "dense", graph_sizes)
    ]
    return [*steps, *(PrefillCell(tokens) for tokens in sorted(grid.prompt_tokens))]


def _totals(grid: Grid, batch: int, dense: bool, graph_sizes: Sequence[int]) -> list[int]:
    """Totals of one batch, none beyond its largest in `packed_per_request`."""
    totals = {batch * packed for packed in grid.packed_per_request}
    jumps = set(graph_sizes) if dense else set()
    if grid.edges:
        jumps |= {edge * i for edge in EDGES for i in range(1, MULTIPLES + 1)}
    near = set()
    for jump in jumps:
        if jump <= grid.edge_tokens:
            below = jump // batch * batch
            near |= {below, below + batch} if dense else {jump - 1, jump, jump + 1}
    if graph_sizes and not dense:  # steps between two run the next: only the last has one behind it
        near |= {*graph_sizes, graph_sizes[-1] + 1}
    return sorted(totals | {total for total in near if batch <= total <= max(totals)})


def one_pass(cells: Sequence[Cell], seed: int, index: int) -> list[Cell]:
    """The cells in the order of pass `index`: shuffled, so that drift hits all alike."""
    order = np.random.default_rng([seed, index]).permutation(len(cells))
    return [cells[i] for i in order]
