"""Timing one cell on the engine, phase by phase as a live step."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from real_runner.engine.clock import PhaseClock
from real_runner.engine.engine import Engine, Settings
from real_runner.engine.models import LiveDrafter, LivePair
from real_runner.engine.walk import Verifier
from real_runner.models.loading import ran_out
from real_runner.probing.grid import Cell, Grid, PrefillCell, Samples, StepCell, cells_of
from simulator.orders import BlockScores, build_block
from simulator.orders.specs import BestFirstOrder
from simulator.orders.table import ARRAYS, OrderTable
from traces.common.errors import InputError

BRANCH = 8
SURE = (0.4, 0.9)  # probability of a depth's best token
FRESH = 3  # tokens a round commits: their states wait for the next draft
_STATES, _TOKENS = 1, 2  # streams of random numbers


class DoesNotFit(Exception):
    """A cell that memory has no room for."""


class Probe:
    """Steps of made-up requests: random caches, random roots, trees that nothing is accepted of.

    Args:
        drafter: of the pair.
        verifier: greedy match if None.
        seed: of the made-up parts; times do not depend on it.
    """

    def __init__(
        self,
        pair: LivePair,
        drafter: LiveDrafter,
        settings: Settings | None = None,
        verifier: Verifier | None = None,
        seed: int = 0,
    ) -> None:
        self.pair, self.drafter, self.target = pair, drafter, pair.target
        self.settings, self.verifier = settings or Settings(), verifier
        self.seed = seed
        self._room = (0, 0)  # requests, cached tokens: one engine for all cells, as a server has
        self._size = (0, 0)  # of the engine at hand
        self._engine: Engine | None = None
        self._table: OrderTable | None = None
        self._tokens = np.setdiff1d(
            np.arange(self.target.vocab_size), list(self.target.banned_tokens)
        )

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Totals that a pass is padded to (`Engine.graph_sizes`), on CUDA captured graphs."""
        return self.settings.graph_sizes if self.settings.graphs else ()

    def cells(self, grid: Grid) -> list[Cell]:
        """The cells of a grid for this packing and these graphs.

        Raises:
            InputError: a prefix or a prompt beyond the model's context, or more nodes than
                one-token drafts have.
        """
        last = self.target.max_positions
        ahead = max(self.drafter.depths, self.drafter.slots - 1) + 1
        limits = {"prefixes": last - ahead, "prompt_tokens": last}
        if self.drafter.depths == 1:
            limits["packed_per_request"] = len(self._tokens) + 1
        for name, most in limits.items():
            largest = max(getattr(grid, name), default=0)
            if largest > most:
                raise InputError(
                    f"probe.{name} holds {largest}; accepted with this pair: up to {most}"
                )
        self._room = (max(grid.batches), max((*grid.prefixes, *grid.prompt_tokens)))
        return cells_of(grid, self.settings.packing, self.graph_sizes)

    def measure(self, cell: Cell, warmup: int, repeats: int) -> Samples:
        """Times of `repeats` iterations after `warmup` others.

        Raises:
            DoesNotFit: out of memory.
        """
        try:
            if isinstance(cell, PrefillCell):
                return self._prompts(cell, warmup, repeats)
            return self._steps(cell, warmup, repeats)
        except (MemoryError, RuntimeError) as error:
            if not ran_out(error):
                raise
        self._engine = None
        raise DoesNotFit(f"{cell} does not fit into memory")

    def _prompts(self, cell: PrefillCell, warmup: int, repeats: int) -> Samples:
        """Prefill as a server times it: until the first token is on the host."""
        engine, rng = self._ready(1, cell.tokens), self._rng(_TOKENS)
        engine.pretend(0, 0, rng)
        prompt, seconds = rng.choice(self._tokens, cell.tokens), []
        with no_collection():
            for _ in range(warmup + repeats):
                begin_s = time.perf_counter()
                engine.admit(prompt, seed=0)
                seconds.append(time.perf_counter() - begin_s)
                engine.release(np.zeros(1, bool))
        return Samples(prefill_s=tuple(seconds[warmup:]))

    def _steps(self, cell: StepCell, warmup: int, repeats: int) -> Samples:
        """Draft and verify in turn; no commit, so that every iteration meets the same state."""
        engine, width = self._ready(cell.batch, cell.prefix), cell.packed - 1
        engine.pretend(cell.batch, cell.prefix, self._rng(_TOKENS))
        table = self._trees(cell.batch, int(width.max())) if cell.drafts else None
        fresh = self._fresh(cell)
        seeds, output_index = np.arange(cell.batch), np.zeros(cell.batch, np.int64)
        clock, parts = PhaseClock(self.target.device), []
        with no_collection():
            for _ in range(warmup + repeats):
                if cell.drafts:
                    engine.hand(*fresh)
                clock.start()
                if cell.drafts:
                    engine.draft()
                    clock.mark("draft")
                engine.verify(table, width, seeds, output_index)
                parts.append(clock.mark("verify").read())
        parts = parts[warmup:]
        draft_s = tuple(part["draft"] for part in parts) if cell.drafts else ()
        return Samples(tuple(part["verify"] for part in parts), draft_s)

    def _ready(self, batch: int, tokens: int) -> Engine:
        """An engine with room for the cell: one for the whole grid where that fits."""
        if self._engine is None or batch > self._size[0] or tokens > self._size[1]:
            self._engine = None  # gives its memory back before the next one asks for some
            try:
                self._make(max(batch, self._room[0]), max(tokens, self._room[1]))
            except (MemoryError, RuntimeError) as error:
                if not ran_out(error):
                    raise
                self._room = (0, 0)
            if self._engine is None:
                self._make(batch, tokens)
        return self._engine

    def _make(self, batch: int, tokens: int) -> None:
        if self.target.device.type == "cuda":
            torch.cuda.empty_cache()
        engine = Engine(self.target, self.drafter, batch, tokens, self.verifier, self.settings)
        noise = torch.Generator(self.target.device).manual_seed(self.seed)
        for cache in (engine.cache, engine.context):  # untouched pages would read too fast
            cache.key.normal_(generator=noise)
            cache.value.normal_(generator=noise)
        self._engine, self._size = engine, (batch, tokens)

    def _trees(self, batch: int, nodes: int) -> OrderTable:
        """The first requests' trees of at least `nodes`."""
        known = (0, 0) if self._table is None else self._table.score.shape
        if batch > known[0] or nodes > known[1]:
            size = (max(batch, known[0]), max(nodes, known[1]))
            self._table = made_up_trees(*size, self.drafter.depths, self._tokens, self.seed)
        table = self._table
        return OrderTable(
            table.spec, table.anchors[:batch], *(getattr(table, name)[:batch] for name in ARRAYS)
        )

    def _fresh(self, cell: StepCell):
        """States of the last round's tokens, as `Engine.hand` takes them."""
        count = min(FRESH, cell.prefix)
        shape = (cell.batch * count, len(self.drafter.taps) * self.target.width)
        states = torch.from_numpy(self._rng(_STATES).standard_normal(shape))
        states = states.to(self.target.device, self.target.dtype)
        position = np.tile(np.arange(cell.prefix - count, cell.prefix), cell.batch)
        return states, np.repeat(np.arange(cell.batch), count), position

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])


@contextmanager
def no_collection() -> Iterator[None]:
    """Python's collector waits: its pauses belong to no size."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def made_up_trees(
    requests: int, nodes: int, depths: int, tokens: np.ndarray, seed: int
) -> OrderTable:
    """Best-first trees of `nodes` draft nodes that branch as real ones do, one per request.

    Every depth has a geometric law over random tokens, so that trees are long where it is sure
    and wide where it is not; a tree's first nodes are the smaller tree of the same request.

    Args:
        tokens: (n,) those that may be drafted.
    """
    ranks = BRANCH
    while sum(ranks**depth for depth in range(1, depths + 1)) < nodes:
        ranks *= 2
    ranks = min(ranks, len(tokens))
    token, logprob = [], []  # (depths, ranks) of every request, best first
    for request in range(requests):
        rng = np.random.default_rng([seed, request])
        sure = rng.uniform(*SURE, (depths, 1))
        token.append([rng.choice(tokens, ranks, replace=False) for _ in range(depths)])
        logprob.append(np.log(sure) + np.arange(ranks) * np.log1p(-sure))
    scores = BlockScores(np.array(token), np.array(logprob))
    return build_block(BestFirstOrder(nodes=nodes, branch=ranks), scores)
