"""DDTree's order (arXiv 2604.12989): best-first over one list of tokens per depth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.orders.families.blockwise import BlockwiseOrder, Grown
from simulator.orders.scores import BlockScores
from simulator.orders.specs import (
    COUNT,
    check,
    full_tree,
    limited_depth,
    limited_scores,
    one_of,
)
from traces.recordings.recording import Recording

SCORES = ("marginal", "marginal_biased")
AUTO = "auto_marginal"


def marginal_scores(scores: str, recording: Recording) -> str:
    """`scores`, or for auto_marginal the marginals that a drafter of that kind has.

    Those of a block drafter; along the greedy chain those of a semi-autoregressive one, which fall
    below its own chain without that bias.
    """
    if scores != AUTO:
        return scores
    return "marginal_biased" if recording.encoding == "hidden" else "marginal"


@dataclass(frozen=True, slots=True)
class MarginalOrder(BlockwiseOrder):
    """Nodes by falling path score; a pop offers the next sibling and the first child.

    nodes: draft nodes, the root does not count. branch: tokens per depth; null, as published: as
    many as there are nodes, so that the cap never binds. A pool with fewer ranks caps it. scores:
    "marginal", or "marginal_biased" (the bias of the greedy chain's token one depth above).
    Equal scores go to the lexicographically smaller tuple of ranks along the path.
    """

    nodes: int = 15
    branch: int | None = None
    scores: str = "marginal"
    depth_cap: int | None = None

    def __post_init__(self) -> None:
        check(self, scores=one_of(SCORES), nodes=COUNT, branch=COUNT, depth_cap=COUNT)

    def limited(self, depths: int, ranks: int, conditioned: bool, source: str) -> MarginalOrder:
        cap = limited_depth(self, depths, source)
        branch = min(self.branch or self.nodes, self.nodes, ranks)
        nodes = min(self.nodes, full_tree(branch, cap))
        return replace(
            self,
            nodes=nodes,
            branch=branch,
            scores=limited_scores(self.scores, conditioned),
            depth_cap=cap,
        )

    def grow(self, block: BlockScores) -> Grown:
        from simulator.orders.kernels import marginal as marginal_kernel
        from simulator.orders.kernels.children import Children

        token, logq = Children(block, self.scores, self.branch).lists()
        shape = (len(logq), self.nodes)
        score, rank = np.full(shape, -np.inf), np.zeros(shape, np.int64)
        depth, parent = np.zeros(shape, np.int64), np.full(shape, -1)
        marginal_kernel.pop_all(logq, self.depth_cap, score, depth, parent, rank)
        rows = np.arange(len(logq))[:, None]
        return Grown(score, depth, parent, token[rows, np.maximum(depth - 1, 0), rank])
