"""Recursive rejection: the verifier of sampled drafts, and of fixed sets by draw and match.

Children of a node were drawn from q without replacement. They are tried in the sequence of their
draws: child x, drawn from q restricted to what was not drawn before, is accepted with chance
min(1, p(x) / q(x)), else p becomes (p - q)+ normalised. What is emitted where no child is accepted
comes from the p that is left. So emitted tokens have the target's law, whatever q (Sequoia, arXiv
2402.12374; TreeSpark, arXiv 2609.22098).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from real_runner.engine.draws import IndependentDraws, KeyedDraws
from real_runner.engine.walk import DrawAndMatch, GreedyMatch, Round, Verifier, Walk, empty_walk
from simulator.compiling import njit
from simulator.orders.kernels.sampled import slot_uniforms
from traces.common.keyed_noise import VERIFY
from traces.recordings.scores import log_softmax


@dataclass(frozen=True, slots=True)
class Rejection(DrawAndMatch):
    """Any tree above temperature 0; fixed candidate sets are drawn and matched.

    Coins are keyed by the request, its root's output index and the child's slot, or come from the
    stream of independent draws; either way they are independent of the drafts.
    """

    def walk(self, round: Round) -> Walk:
        trees, walk = round.trees, empty_walk(round.trees)
        if trees.sampled is None:
            return DrawAndMatch.walk(self, round)
        parts = (trees.width, trees.parent, trees.token)
        tree = [np.ascontiguousarray(part, np.int64) for part in parts]
        coins, depths = self._coins(round, tree), walk.path.shape[1]
        node, walking = np.full(len(trees), -1), np.arange(len(trees))
        for reached in range(depths + 1):
            logits = round.rows(walking, node[walking]).numpy()
            p = np.exp(log_softmax(logits / self.draws.temperature))  # (n, V)
            if reached < depths:
                token = trees.token[walking, node[walking]]  # of any node for the root
                parent = np.where(node[walking] < 0, trees.root[walking], token)
                q = round.laws.sampled(walking, reached, parent, trees.sampled, p.shape[1])
                node[walking] = try_children(*tree, coins, walking, node[walking], p, q)
            else:
                node[walking] = -1
            ended = node[walking] < 0
            where = walking[ended]
            with np.errstate(divide="ignore"):
                left = self.draws.temperature * np.log(p[ended])
            index = round.output_index[where] + 1 + reached
            walk.token[where, reached] = self.draws.rows(left, round.seeds[where], index)
            walking = walking[~ended]
            if not len(walking):
                break
            walk.accepted[walking], walk.path[walking, reached] = reached + 1, node[walking]
            walk.token[walking, reached] = trees.token[walking, node[walking]]
        return walk

    def _coins(self, round: Round, tree: list[np.ndarray]) -> np.ndarray:
        """(b, M) one for every node."""
        if isinstance(self.draws, IndependentDraws):
            return self.draws.rng.random(tree[1].shape)
        coins = np.empty(tree[1].shape)
        key = (np.asarray(part).astype(np.uint64) for part in (round.seeds, round.output_index))
        slot_uniforms(*key, *tree, VERIFY, coins)
        return coins


@njit(cache=True, nogil=True)
def try_children(width, parent, token, coins, request, node, p, q):
    """The accepted children (n,) of nodes (-1: the root), -1 where all are rejected or none is.

    width (b,), parent, token and coins (b, M) of the trees; request and node (n,); p and q (n, V)
    are used up: p becomes what is left to emit from. Where rounding leaves none of it, that is the
    law the next child would be drawn from.
    """
    accepted = np.full(len(request), -1)
    for k in range(len(request)):
        i = request[k]
        for m in range(width[i]):
            if parent[i, m] != node[k]:
                continue
            x = token[i, m]
            if coins[i, m] * q[k, x] < p[k, x]:
                accepted[k] = m
                break
            mass, rest = 0.0, 0.0
            for v in range(p.shape[1]):
                p[k, v] = max(p[k, v] - q[k, v], 0.0)
                mass += p[k, v]
                if v != x:
                    rest += q[k, v]
            q[k, x] = 0.0
            if rest > 0.0:
                for v in range(p.shape[1]):
                    q[k, v] /= rest
            for v in range(p.shape[1]):
                p[k, v] = p[k, v] / mass if mass > 0.0 else q[k, v]
    return accepted


def make_verifier(temperature: float) -> Verifier:
    """The verifier of any tree, with keyed draws."""
    return Rejection(KeyedDraws(temperature)) if temperature else GreedyMatch()
