"""From the target's logits to what a round accepts: the verifier.

A fixed candidate set is verified by draw and match: draw the target's token at a node, go to the
child that equals it, and stop where none does; that token is the correction, or the bonus. This
accepts exactly as the methods that test a fixed set's children one by one with residuals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from real_runner.engine.draws import Draws
from real_runner.engine.models import LiveDrafter
from real_runner.engine.pack import Packed, Trees
from simulator.compiling import njit
from simulator.orders import BlockScores
from simulator.orders import Draws as Drafts
from simulator.orders.families.sampled import draft_law
from traces.common.errors import InputError


@dataclass(frozen=True, slots=True)
class Walk:
    """What b requests accept."""

    accepted: np.ndarray  # (b,) draft tokens, unclipped
    path: np.ndarray  # (b, D) their nodes, -1 behind the last
    token: np.ndarray  # (b, D + 1) accepted tokens and then the correction or bonus, -1 behind


@dataclass(frozen=True, slots=True)
class DraftLaws:
    """The drafter's full laws of a round, for verifiers that test drafts against them."""

    drafter: LiveDrafter
    logits: Tensor  # (b, D, V) before the Markov bias, banned tokens at -inf
    order: np.ndarray  # (b,) row of `logits` of each request of the pass
    block: BlockScores | None = None  # what drafts were made from, rows as those of `logits`

    def law(self, request: int, depth: int, parent_token: int) -> Tensor:
        """q (V,) float64 of the draft at 0-based `depth` under a parent's token."""
        logits = self.logits[int(self.order[request]), depth].double()
        if self.drafter.markov is not None:
            w1, w2 = self.drafter.markov
            logits = logits + w2.double() @ w1[parent_token].double()
        return logits.softmax(-1)

    def sampled(
        self, request: np.ndarray, depth: int, parent: np.ndarray, temperature: float, vocab: int
    ) -> np.ndarray:
        """q (n, vocab) float64 that sampled drafts at `depth` came from; parent (n,) tokens."""
        return draft_law(self.block, self.order[request], depth, parent, temperature, vocab)


@dataclass(frozen=True, slots=True)
class Round:
    """All that a verifier may look at, request by request as the pass has them."""

    trees: Trees
    packed: Packed
    logits: Tensor  # (rows of the pass, V) of the target, banned tokens at -inf
    seeds: np.ndarray  # (b,) of the requests
    output_index: np.ndarray  # (b,) of their roots
    laws: DraftLaws | None  # None in a plain decoding step

    def row(self, request: int, node: int) -> Tensor:
        """The target's logits (V,) behind a node (-1: the root)."""
        return self.logits[int(self.packed.index(np.array([request]), np.array([node + 1]))[0])]

    def rows(self, request: np.ndarray, node: np.ndarray) -> Tensor:
        """Those behind n nodes, (n, V) float64 on the host: one transfer for all of them."""
        index = torch.from_numpy(self.packed.index(request, node + 1))
        return self.logits[index.to(self.logits.device)].double().cpu()


class Verifier(Protocol):
    """Decides which nodes of the packed trees are accepted.

    Fixed candidate sets need the target's logits alone (`DrawAndMatch`). Sampled siblings are
    tested one by one against `Round.laws`, in the sequence of their draws (`residual.Rejection`);
    the engine asks nothing else of a verifier.
    """

    def walk(self, round: Round) -> Walk:
        """What every request accepts, and the token behind it."""

    def first(self, logits: Tensor, seed: int) -> int:
        """Output 0, which prefill emits, from logits (V,)."""

    def drafts(self, seeds: np.ndarray, output_index: np.ndarray) -> Drafts:
        """Where the sampled drafts of a step come from."""


@dataclass(frozen=True, slots=True)
class GreedyMatch:
    """Temperature 0: the argmax of every row at once, then a compiled walk."""

    def walk(self, round: Round) -> Walk:
        trees, packed = round.trees, round.packed
        best = round.logits.argmax(-1).cpu().numpy()  # (rows,) ties to the smaller token id
        slots = trees.slots
        request, slot = np.divmod(np.arange(len(trees) * slots), slots)
        slot = np.minimum(slot, trees.width[request])
        emitted = best[packed.index(request, slot)].reshape(-1, slots)
        walk = empty_walk(trees)
        _walk(trees.width, trees.parent, trees.token, emitted, walk.accepted, walk.path, walk.token)
        return walk

    def first(self, logits: Tensor, seed: int) -> int:
        return int(logits.argmax())

    def drafts(self, seeds: np.ndarray, output_index: np.ndarray) -> Drafts:
        raise InputError("temperature is 0; accepted for an order that samples drafts: above 0")


@dataclass(frozen=True, slots=True)
class DrawAndMatch:
    """Any temperature: one draw per node on the path."""

    draws: Draws

    def walk(self, round: Round) -> Walk:
        trees, walk = round.trees, empty_walk(round.trees)
        node, walking = np.full(len(trees), -1), np.arange(len(trees))
        for reached in range(walk.token.shape[1]):
            logits = round.rows(walking, node[walking]).numpy()
            where = round.seeds[walking], round.output_index[walking] + 1 + reached
            walk.token[walking, reached] = self.draws.rows(logits, *where)
            drawn = trees.token[walking] == walk.token[walking, reached, None]  # (n, M)
            match = drawn & (trees.parent[walking] == node[walking, None])
            match &= np.arange(match.shape[1]) < trees.width[walking, None]
            node[walking] = np.where(match.any(1), match.argmax(1), -1)
            walking = walking[node[walking] >= 0]
            if not len(walking):
                break
            walk.accepted[walking], walk.path[walking, reached] = reached + 1, node[walking]
        return walk

    def first(self, logits: Tensor, seed: int) -> int:
        one = logits.double().cpu().numpy()[None]
        return int(self.draws.rows(one, np.array([seed]), np.array([0]))[0])

    def drafts(self, seeds: np.ndarray, output_index: np.ndarray) -> Drafts:
        return self.draws.drafts(seeds, output_index)


def empty_walk(trees: Trees) -> Walk:
    """Nothing accepted yet, with room for the deepest path."""
    batch, depths = len(trees), max(int(trees.depth.max(initial=0)), 1)
    accepted, path = np.zeros(batch, np.int64), np.full((batch, depths), -1)
    return Walk(accepted, path, np.full((batch, depths + 1), -1))


@njit(cache=True, nogil=True)
def _walk(width, parent, drafted, emitted, accepted, path, token):
    """Follow the target's tokens; emitted (b, t) is its token after every packed token."""
    for i in range(len(width)):
        node = -1
        token[i, 0] = emitted[i, 0]
        for m in range(width[i]):  # parents stand before children
            if parent[i, m] == node and drafted[i, m] == token[i, accepted[i]]:
                path[i, accepted[i]] = m
                accepted[i] += 1
                node = m
                token[i, accepted[i]] = emitted[i, m + 1]


def ban(logits: Tensor, banned: tuple[int, ...]) -> Tensor:
    """Logits (..., V) with the banned tokens at -inf, in place."""
    if banned:
        logits.index_fill_(-1, _index(banned, logits.device), float("-inf"))
    return logits


@lru_cache(maxsize=16)
def _index(tokens: tuple[int, ...], device: torch.device) -> Tensor:
    """Token ids on a device: copied once, as every copy there waits for the device."""
    with torch.inference_mode(False):  # not of the mode it is first asked in
        return torch.tensor(tokens, device=device)
