"""A verifier that is known to be wrong, to show that the distribution test can tell.

Never used to serve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from real_runner.engine.walk import DrawAndMatch, Round, Walk, empty_walk


@dataclass(frozen=True, slots=True)
class TopKWithFullResiduals(DrawAndMatch):
    """Tests the nodes of a fixed top-k set as if they had been sampled from the whole vocabulary.

    Child after child is accepted with min(1, p / q) and the residuals of recursive rejection, q
    being the drafter's law over all tokens not yet tried. But nothing was drawn from q: the set is
    its top k, always. So the emitted tokens are not the target's. Its draws are independent ones.
    """

    def walk(self, round: Round) -> Walk:
        """Like `DrawAndMatch.walk`, wrongly."""
        walk = empty_walk(round.trees)
        for i in range(len(round.trees)):
            node = -1
            for reached in range(walk.token.shape[1]):
                node, walk.token[i, reached] = self._test(round, i, node)
                if node < 0:
                    break
                walk.accepted[i], walk.path[i, reached] = reached + 1, node
        return walk

    def _test(self, round: Round, request: int, node: int) -> tuple[int, int]:
        """The accepted child of `node` (-1: none) and the emitted token."""
        trees, rng = round.trees, self.draws.rng
        p = (round.row(request, node).double() / self.draws.temperature).softmax(-1).cpu().numpy()
        children = np.flatnonzero(trees.parent[request, : int(trees.width[request])] == node)
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
