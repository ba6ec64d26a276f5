"""One target and one drafter, and the running requests' state in both: the five phases of a step.

Requests have a place in the batch, in the order of their admission, and a row in the caches; rows
need not be in that order, so that a request that ends moves no other's keys.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from real_runner.engine.attend import PromptAttend
from real_runner.engine.cache import KVCache, rounded
from real_runner.engine.graphs import COLUMNS, GRAPH_SIZES, GraphedVerify
from real_runner.engine.models import LiveDrafter, LiveTarget
from real_runner.engine.pack import PACKINGS, Packed, Trees, block_attend, pack
from real_runner.engine.walk import DraftLaws, GreedyMatch, Round, Verifier, Walk, ban
from simulator.orders import BlockScores, DraftHead, build_block
from simulator.orders.specs import Order
from simulator.orders.table import OrderTable
from traces.common.errors import InputError

HEADROOM = 160  # columns beyond a text: a tree being verified, a block being drafted
LAWS = 2**27  # log-probabilities held at once


@dataclass(frozen=True, slots=True)
class Settings:
    """How the engine runs, whatever the policy."""

    packing: str = "ragged"
    pool: int = 16  # ranks per depth of a block drafter's scores
    graphs: bool = False  # pad verify passes to `graph_sizes`; on CUDA, replay captured graphs
    graph_sizes: tuple[int, ...] = GRAPH_SIZES  # rising total tokens; longer passes run as they are

    def __post_init__(self) -> None:
        if self.packing not in PACKINGS:
            raise InputError(f"packing is {self.packing!r}; accepted: {', '.join(PACKINGS)}")
        sizes = self.graph_sizes
        if not sizes or sizes[0] < 1 or any(b <= a for a, b in pairwise(sizes)):
            raise InputError(f"graph_sizes is {sizes!r}; accepted: rising numbers from 1 on")


class Engine:
    """Holds caches for `capacity` requests of up to `columns` tokens.

    Args:
        drafter: None for plain decoding, which then taps no states.
        verifier: how trees are walked; by default greedy match.
        head: `draft_head` of the pair, to share the rows it keeps between engines.
    """

    def __init__(
        self,
        target: LiveTarget,
        drafter: LiveDrafter | None,
        capacity: int,
        columns: int,
        verifier: Verifier | None = None,
        settings: Settings | None = None,
        head: DraftHead | None = None,
    ) -> None:
        self.target, self.drafter = target, drafter
        self.settings = settings or Settings()
        self.verifier = verifier or GreedyMatch()
        self._taps = () if drafter is None else drafter.taps
        # Attend request by request: on a CPU padding costs more than the calls.
        self._apart = target.device.type == "cpu" and not self.settings.graphs
        columns = columns + HEADROOM
        if self.settings.graphs:
            columns = rounded(columns, COLUMNS)  # a cache that moves would invalidate them
        self.cache = KVCache(target, capacity, columns)
        self.context = None if drafter is None else KVCache(drafter, capacity, columns)
        self.head = head
        if head is None and drafter is not None:
            self.head = draft_head(target, drafter)
        self.row = np.zeros(0, np.int64)  # (batch,) cache row of every request
        self.length = np.zeros(0, np.int64)  # (batch,) tokens before the root
        self.root = np.zeros(0, np.int64)  # (batch,) last token emitted
        self._serial = np.zeros(0, np.int64)  # (batch,) number of every request, rising
        self._admitted = 0
        self._fresh: deque[tuple[Tensor, np.ndarray, np.ndarray]] = deque()
        sizes = self.graph_sizes
        self._graphs = GraphedVerify(target, self._taps, self.cache, sizes) if sizes else None

    @property
    def batch(self) -> int:
        return len(self.row)

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Total tokens that verify passes are padded to; none without graphs."""
        return self.settings.graph_sizes if self.settings.graphs else ()

    @torch.inference_mode()
    def admit(self, prompt: np.ndarray, seed: int, root: int | None = None) -> int:
        """Read a prompt into the next place; returns its root: output 0, or the one given.

        prompt (t,): with `root`, all tokens before it, outputs included.
        """
        row = int(np.setdiff1d(np.arange(self.batch + 1), self.row)[0])
        self.cache.ensure(len(prompt) + HEADROOM)
        tokens = torch.from_numpy(np.asarray(prompt, np.int64)).to(self.target.device)[None]
        positions = torch.arange(len(prompt), device=tokens.device)[None]
        attend = PromptAttend(self.cache, row)
        hidden, tapped = self.target.forward(tokens, positions, attend, self._taps)
        if self.drafter is not None:
            self._extend(tapped[0], np.full(len(prompt), row), np.arange(len(prompt)))
        if root is None:
            logits = ban(self.target.logits(hidden[0, -1]), self.target.banned_tokens)
            root = self.verifier.first(logits, seed)
        elif self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)  # else the next step would pay for it
        self._join(row, len(prompt), root)
        return root

    def _join(self, row: int, length: int, root: int) -> None:
        """A request whose `length` tokens are cached takes the last place."""
        self.row = np.append(self.row, row)
        self.length = np.append(self.length, length)
        self.root = np.append(self.root, root)
        self._serial = np.append(self._serial, self._admitted)
        self._admitted += 1

    def release(self, going: np.ndarray) -> None:
        """Keep the requests of `going` (batch,) bool; the others' places and rows are free."""
        self.row, self.length, self.root = self.row[going], self.length[going], self.root[going]
        self._serial = self._serial[going]
        while self._fresh and not np.isin(self._fresh[0][1], self._serial).any():
            self._fresh.popleft()

    def _settle(self) -> None:
        """Let the batch hold exactly the first rows: a pass reads them in place."""
        free = np.setdiff1d(np.arange(self.batch), self.row)
        for place, row in zip(np.flatnonzero(self.row >= self.batch), free, strict=True):
            length = int(self.length[place])
            self.cache.move(int(self.row[place]), int(row), length)
            if self.context is not None:
                self.context.move(int(self.row[place]), int(row), length)
            self.row[place] = row

    @torch.inference_mode()
    def draft(self) -> BlockScores:
        """Draft one block per request; scores in the order of the batch."""
        self._settle()
        self._catch_up()
        order = np.argsort(self.row)
        attend = block_attend(
            self.context, self.length[order], self.drafter.slots, self.target.dtype, self._apart
        )
        anchor, length, back = (
            torch.from_numpy(part).to(self.target.device)
            for part in (self.root[order], self.length[order], self.row)
        )
        self._drafted = None  # its memory is wanted
        hidden = self.drafter.forward(anchor, length, attend)
        logits = ban(self.drafter.logits(hidden[back]), self.target.banned_tokens)
        self._drafted, confidence = logits, None
        weights = self.drafter.confidence_weights()
        if weights is not None:  # logits (batch, D), without what the parent adds
            confidence = _host(hidden[back] @ weights[0] + weights[2]).astype(np.float64)
        self._block = block_scores(
            self.drafter, logits, self.settings.pool, self.head, self.root, confidence
        )
        return self._block

    def _catch_up(self) -> None:
        """Give the drafter all it has not read, in one pass: there may have been plain steps."""
        if not self._fresh:
            return
        parts = zip(*self._fresh, strict=True)
        self._fresh.clear()
        states, serial, position = next(parts), *map(np.concatenate, parts)
        states = states[0] if len(states) == 1 else torch.cat(states)
        place = np.searchsorted(self._serial, serial)
        here = self._serial[np.minimum(place, self.batch - 1)] == serial
        if not here.all():  # requests that ended since
            place, position = place[here], position[here]
            states = states[torch.from_numpy(np.flatnonzero(here)).to(states.device)]
        self._extend(states, self.row[place], position)

    def order(self, spec: Order, block: BlockScores, seeds=None, output_index=None) -> OrderTable:
        """The order of every request's block, by the simulator's kernel.

        seeds (batch,) of the requests, output_index (batch,) of their roots: for sampled drafts.
        """
        if not getattr(spec, "sampled", False):
            return build_block(spec, block)
        return build_block(spec, block, None, self.verifier.drafts(seeds, output_index))

    @torch.inference_mode()
    def verify(self, table: OrderTable | None, width: np.ndarray, seeds, output_index) -> Walk:
        """One target pass over the first `width` (batch,) nodes of every request, and its walk.

        seeds (batch,) of the requests, output_index (batch,) of their roots.
        """
        self._settle()
        order = np.argsort(self.row)  # the pass runs in the order of rows
        trees = self.trees(table, width).arranged(order)
        packed = pack(trees, self.cache, self.settings.packing, self.target.dtype, self._apart)
        hidden, tapped = self._forward(packed)
        logits = self.target.logits(packed.per_request(hidden))
        ban(logits, self.target.banned_tokens)
        laws = None if table is None else DraftLaws(self.drafter, self._drafted, order, self._block)
        seen = Round(trees, packed, logits, seeds[order], output_index[order], laws)
        walk = self.verifier.walk(seen)
        self._walked = (trees, packed, tapped, walk)
        return Walk(*(getattr(walk, name)[self.row] for name in walk.__slots__))

    def _forward(self, packed: Packed) -> tuple[Tensor, Tensor]:
        """Final and tapped states of the pass."""
        if self._graphs is not None and self._graphs.covers(packed):
            return self._graphs(packed)
        return self.target.forward(packed.tokens, packed.positions, packed.attend, self._taps)

    def trees(self, table: OrderTable | None, width: np.ndarray) -> Trees:
        """The nodes to verify, in the order of the batch; no table: the roots alone."""
        if table is None:
            none = np.zeros((self.batch, 1), np.int64)
            return Trees(self.root, self.length, width, none, none - 1, none)
        most = max(int(width.max()), 1)
        parts = (part[:, :most] for part in (table.token, table.parent, table.depth))
        spec = getattr(table, "spec", None)
        sampled = spec.temperature if getattr(spec, "sampled", False) else None
        return Trees(self.root, self.length, width, *parts, sampled)

    @torch.inference_mode()
    def commit(self) -> None:
        """Keep the accepted tokens' keys, values and states; the bonus becomes the root."""
        trees, packed, tapped, walk = self._walked
        request, step = np.nonzero(np.arange(walk.path.shape[1] + 1) <= walk.accepted[:, None])
        node = np.concatenate([np.full((len(trees), 1), -1), walk.path], axis=1)[request, step]
        start = trees.length[request]
        self.cache.keep(request, start + node + 1, start + step)  # a row is its request's place
        place = np.argsort(self.row)  # of the batch, by row
        if self.drafter is not None:
            states = packed.per_request(tapped)
            if trees.width.any() or self._graphs is not None:  # else the pass is kept whole
                index = torch.from_numpy(packed.index(request, node + 1)).to(tapped.device)
                states = states[index]
            self.hand(states, place[request], start + step)
        self.length = self.length + walk.accepted[self.row] + 1
        last = np.take_along_axis(walk.token, walk.accepted[:, None], 1)[:, 0]
        self.root = last[self.row]

    def pretend(self, batch: int, prefix: int, rng: np.random.Generator) -> None:
        """Stand where `batch` requests have `prefix` cached tokens and random roots (a probe).

        Running requests are lost; cached contents are whatever lies there.
        """
        self.row, self.length = np.arange(batch), np.full(batch, prefix)
        self._serial, self._admitted = np.arange(batch), batch
        self.root = rng.integers(self.target.vocab_size, size=batch)
        self._fresh.clear()

    def hand(self, states: Tensor, place: np.ndarray, position: np.ndarray) -> None:
        """States (n, taps * width) of committed tokens, for the next draft to take in."""
        self._fresh.append((states, self._serial[place], position))

    def _extend(self, states: Tensor, row: np.ndarray, position: np.ndarray) -> None:
        """Give the drafter the target's states (n, taps * width) of committed tokens."""
        self.context.ensure(int(position.max(initial=0)) + HEADROOM)
        row, position = (torch.from_numpy(part).to(states.device) for part in (row, position))
        for layer, (key, value) in enumerate(self.drafter.context(states[None], position[None])):
            self.context.write(layer, row, position, key, value)


def draft_head(target: LiveTarget, drafter: LiveDrafter) -> DraftHead:
    """What orders need of the drafter besides a block's logits."""
    factors = (None, None)
    if drafter.markov is not None:
        factors = tuple(factor.double().cpu().numpy() for factor in drafter.markov)
    weights = drafter.confidence_weights()
    if weights is not None:
        weights = [part.detach().double().cpu().numpy() for part in weights]
    head = DraftHead(target.vocab_size, None, *factors, target.banned_tokens, weights)
    head.fill()
    return head


def block_scores(
    drafter: LiveDrafter,
    logits: Tensor,
    pool: int,
    head: DraftHead,
    anchor_token: np.ndarray,
    confidence: np.ndarray | None = None,
) -> BlockScores:
    """Scores on the host of logits (b, D, V), banned tokens at -inf.

    Pools of the best log-probabilities where scores ignore the parent, rounded as a recording in
    the same type rounds them; the whole law where they do not. bfloat16, which numpy lacks, comes
    out as float32, and its laws are taken in float32.
    """
    if drafter.markov is not None:
        given = {"head": head, "anchor_token": anchor_token, "confidence_logit": confidence}
        return BlockScores(logits=_host(logits), **given)
    wide = torch.float32 if logits.dtype == torch.bfloat16 else torch.float64
    tokens, values = [], []
    for part in logits.split(max(1, LAWS // logits[0].numel())):  # wide copies of few at once
        best = part.log_softmax(-1, dtype=wide).topk(pool, sorted=True)
        tokens.append(best.indices)
        values.append(best.values if wide == torch.float32 else best.values.to(logits.dtype))
    return BlockScores(_host(torch.cat(tokens)), _host(torch.cat(values)))


def _host(values: Tensor) -> np.ndarray:
    values = values.cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
