"""From the target's logits to what a round accepts: the verifier, and where its tokens come from.

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
from numba import njit
from torch import Tensor

from real_runner.engine.models import LiveDrafter
from real_runner.engine.pack import Packed, Trees
from traces.keyed_noise import keyed_draw


@dataclass(frozen=True, slots=True)
class Walk:
    """What b requests accept."""

    accepted: np.ndarray  # (b,) draft tokens, unclipped
    path: np.ndarray  # (b, D) their nodes, -1 behind the last
    token: np.ndarray  # (b, D + 1) accepted tokens and then the correction or bonus, -1 behind


class Draws(Protocol):
    """The target's tokens."""

    def draw(self, logits: Tensor, seed: int, output_index: int) -> int:
        """The token of one output of a request, from logits (V,) without the banned tokens."""


@dataclass(frozen=True, slots=True)
class DraftLaws:
    """The drafter's full laws of a round, for verifiers that test drafts against them."""

    drafter: LiveDrafter
    logits: Tensor  # (b, D, V) before the Markov bias, banned tokens at -inf
    order: np.ndarray  # (b,) row of `logits` of each request of the pass

    def law(self, request: int, depth: int, parent_token: int) -> Tensor:
        """q (V,) float64 of the draft at 0-based `depth` under a parent's token."""
        logits = self.logits[int(self.order[request]), depth].double()
        if self.drafter.markov is not None:
            w1, w2 = self.drafter.markov
            logits = logits + w2.double() @ w1[parent_token].double()
        return logits.softmax(-1)


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
    tested one by one against `Round.laws`, in the sequence of their draws; the engine asks nothing
    else of a verifier.
    """

    def walk(self, round: Round) -> Walk:
        """What every request accepts, and the token behind it."""

    def first(self, logits: Tensor, seed: int) -> int:
        """Output 0, which prefill emits, from logits (V,)."""


@dataclass(frozen=True, slots=True)
class KeyedDraws:
    """Greedy at temperature 0; above it, noise keyed by request seed and output index.

    The same request then emits the same text under every policy.
    """

    temperature: float

    def draw(self, logits: Tensor, seed: int, output_index: int) -> int:
        return keyed_draw(logits.double().cpu().numpy(), self.temperature, seed, output_index)


@dataclass(frozen=True, slots=True)
class IndependentDraws:
    """Draws from softmax(logits / temperature), each with fresh noise of one random stream."""

    temperature: float
    rng: np.random.Generator

    def draw(self, logits: Tensor, seed: int, output_index: int) -> int:
        scores = logits.double().cpu().numpy() / self.temperature
        return int(np.argmax(scores + self.rng.gumbel(size=len(scores))))


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
        return greedy_walk(trees, emitted)

    def first(self, logits: Tensor, seed: int) -> int:
        return int(logits.argmax())


@dataclass(frozen=True, slots=True)
class DrawAndMatch:
    """Any temperature: one draw per node on the path."""

    draws: Draws

    def walk(self, round: Round) -> Walk:
        trees = round.trees
        depths = max(int(trees.depth.max(initial=0)), 1)
        accepted = np.zeros(len(trees), np.int64)
        path = np.full((len(trees), depths), -1)
        token = np.full((len(trees), depths + 1), -1)
        node, walking = np.full(len(trees), -1), np.arange(len(trees))
        for reached in range(depths + 1):
            for i, logits in zip(walking, round.rows(walking, node[walking]), strict=True):
                seed, index = int(round.seeds[i]), int(round.output_index[i]) + 1 + reached
                token[i, reached] = self.draws.draw(logits, seed, index)
                node[i] = child_of(trees, i, int(node[i]), int(token[i, reached]))
            walking = walking[node[walking] >= 0]
            if not len(walking):
                break
            accepted[walking], path[walking, reached] = reached + 1, node[walking]
        return Walk(accepted, path, token)

    def first(self, logits: Tensor, seed: int) -> int:
        return self.draws.draw(logits, seed, 0)


def child_of(trees: Trees, request: int, node: int, token: int) -> int:
    """The verified child of `node` (-1: the root) that holds `token`, or -1."""
    width = int(trees.width[request])
    match = (trees.parent[request, :width] == node) & (trees.token[request, :width] == token)
    return int(match.argmax()) if match.any() else -1


def make_verifier(temperature: float) -> Verifier:
    """The verifier of fixed candidate sets with keyed draws."""
    return DrawAndMatch(KeyedDraws(temperature)) if temperature else GreedyMatch()


def greedy_walk(trees: Trees, emitted: np.ndarray) -> Walk:
    """Follow the target's tokens; emitted (b, t) is its token after every packed token."""
    depths = max(int(trees.depth.max(initial=0)), 1)
    batch = len(trees)
    accepted, path = np.zeros(batch, np.int64), np.full((batch, depths), -1)
    token = np.full((batch, depths + 1), -1)
    _walk(trees.width, trees.parent, trees.token, emitted, accepted, path, token)
    return Walk(accepted, path, token)


@njit(cache=True, nogil=True)
def _walk(width, parent, drafted, emitted, accepted, path, token):
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
