"""DDTree (arXiv 2604.12989): the best N nodes over one token list per depth, every round."""

from __future__ import annotations

from simulator.orders.families.marginal import AUTO, SCORES, MarginalOrder, marginal_scores
from simulator.policies.checks import choice, node_count
from simulator.policies.shared.rules import WholeTree
from traces.recordings.recording import Recording


class DDTree(WholeTree):
    """Verify the N best nodes by marginals, whatever the load.

    Args:
        nodes: N; the root does not count, so 15 are 16 packed tokens, DFlash's block. The paper's
            figures use the best N for each pair of data and model.
        scores: auto_marginal is the marginals of a block drafter, and along the greedy chain
            (marginal_biased) those of a semi-autoregressive one.
    """

    def __init__(self, nodes: int = 15, scores: str = AUTO) -> None:
        self.nodes = node_count("nodes", nodes)
        self.scores = choice("scores", scores, (AUTO, *SCORES))

    def grown(self, recording: Recording) -> MarginalOrder:
        return MarginalOrder(self.nodes, scores=marginal_scores(self.scores, recording))

    def describe(self) -> dict:
        """rank_cap: tokens per depth; N as published, less where the recording has fewer."""
        return {"scores": self.order.scores, "rank_cap": self._fit["branch"]}
