"""Which sizes are measured: steps by batch, cached prefix and packed tokens, and prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

    def fits_in(self, other: Cell) -> bool:
        """Whether `other` is the same kind of work and at least as large."""
        same = isinstance(other, StepCell)
        same = same and (self.batch, self.prefix) == (other.batch, other.prefix)
        return same and self.total <= other.total

    def __str__(self) -> str:
        return f"batch {self.batch}, prefix {self.prefix}, {self.total} packed tokens"


@dataclass(frozen=True, slots=True, order=True)
class PrefillCell:
    """A prompt of `tokens`."""

    tokens: int

    def fits_in(self, other: Cell) -> bool:
        """Whether `other` is a prompt at least as long."""
        return isinstance(other, PrefillCell) and self.tokens <= other.tokens

    def __str__(self) -> str:
        return f"a prompt of {self.tokens} tokens"


Cell = StepCell | PrefillCell


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
        for total in _totals(grid, batch, packing, graph_sizes)
    ]
    return [*steps, *(PrefillCell(tokens) for tokens in sorted(grid.prompt_tokens))]


def _totals(grid: Grid, batch: int, packing: str, graph_sizes: Sequence[int]) -> list[int]:
    """Totals of one batch, none beyond its largest in `packed_per_request`."""
    totals = {batch * packed for packed in grid.packed_per_request}
    largest = max(totals)
    ragged = packing == "ragged"
    jumps = set() if ragged else set(graph_sizes)
    if grid.edges:
        jumps |= {edge * i for edge in EDGES for i in range(1, MULTIPLES + 1)}
    near = {
        one for jump in jumps if jump <= grid.edge_tokens for one in _near(jump, batch, packing)
    }
    if ragged and graph_sizes:  # steps between two run the next: only the last is followed by more
        near |= {*graph_sizes, graph_sizes[-1] + 1}
    return sorted(totals | {total for total in near if batch <= total <= largest})


def _near(jump: int, batch: int, packing: str) -> Iterable[int]:
    """Totals at a jump and next to it."""
    if packing == "dense":
        return jump // batch * batch, (jump // batch + 1) * batch
    return jump - 1, jump, jump + 1


def one_pass(cells: Sequence[Cell], seed: int, index: int) -> list[Cell]:
    """The cells in the order of pass `index`: shuffled, so that drift hits all alike."""
    order = np.random.default_rng([seed, index]).permutation(len(cells))
    return [cells[i] for i in order]


def share(repeats: int, passes: int, index: int) -> int:
    """Repeats of a cell that fall on pass `index`."""
    return repeats // passes + (index < repeats % passes)
