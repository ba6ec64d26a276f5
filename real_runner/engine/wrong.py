"""A verifier that is known to be wrong, to show that the distribution test can tell.

Never used to serve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from real_runner.engine.draws import IndependentDraws
from real_runner.engine.pack import Trees
from real_runner.engine.walk import Round, Walk


@dataclass(frozen=True, slots=True)
class TopKWithFullResiduals:
    """Tests the nodes of a fixed top-k set as if they had been sampled from the whole vocabulary.

    Child after child is accepted with min(1, p / q) and the residuals of recursive rejection, q
    being the drafter's law over all tokens not yet tried. But nothing was drawn from q: the set is
    its top k, always. So the emitted tokens are not the target's.
    """

    draws: IndependentDraws

    def walk(self, round: Round) -> Walk:
        """Like `DrawAndMatch.walk`, wrongly."""
        trees = round.trees
        depths = max(int(trees.depth.max(initial=0)), 1)
        accepted = np.zeros(len(trees), np.int64)
        path = np.full((len(trees), depths), -1)
        token = np.full((len(trees), depths + 1), -1)
        for i in range(len(trees)):
            node = -1
            for reached in range(depths + 1):
                node, token[i, reached] = self._test(round, i, node)
                if node < 0:
                    break
                accepted[i], path[i, reached] = reached + 1, node
        return Walk(accepted, path, token)

    def _test(self, round: Round, request: int, node: int) -> tuple[int, int]:
        """The accepted child of `node` (-1: none) and the emitted token."""
        trees, rng = round.trees, self.draws.rng
        p = (round.row(request, node).double() / self.draws.temperature).softmax(-1).cpu().numpy()
        children = _children(trees, request, node)
        if len(children):
            depth = int(trees.depth[request, children[0]]) - 1
            parent = trees.root[request] if node < 0 else trees.token[request, node]
            q = round.laws.law(request, depth, int(parent)).cpu().numpy()
            for child in children:
                x = int(trees.token[request, child])
                if rng.random() * q[x] <= p[x]:
                    return int(child), x
                p = np.maximum(p - q, 0)
                p /= p.sum()
                q[x] = 0
                q /= q.sum()
        return -1, int(rng.choice(len(p), p=p))

    def first(self, logits, seed: int) -> int:
        """Output 0 is drawn rightly."""
        return self.draws.draw(logits, seed, 0)


def _children(trees: Trees, request: int, node: int) -> np.ndarray:
    width = int(trees.width[request])
    return np.flatnonzero(trees.parent[request, :width] == node)
