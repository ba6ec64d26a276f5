"""PCTree (arXiv 2608.02123): layers of parent-conditioned children, then the best of the pool."""

from __future__ import annotations

from simulator.orders.families.beam import BeamOrder
from simulator.orders.specs import MAX_NODES
from simulator.policies.checks import node_count, whole
from simulator.policies.shared.rules import WholeTree
from traces.recordings.recording import Recording


class PCTree(WholeTree):
    """The top k children of k nodes per depth, reranked to the best N by joint probability.

    Whatever the load. Marginals stand in where a recording's scores do not depend on the parent.

    Args:
        k: children of a node, and nodes of a depth that get any.
        packed_tokens: the paper's N, the root included.
    """

    shown = ("scores", "branch", "nodes")

    def __init__(self, k: int = 4, packed_tokens: int = 64) -> None:
        self.k = node_count("k", k)
        self.packed_tokens = whole("packed_tokens", packed_tokens, low=2, high=MAX_NODES + 1)

    def grown(self, recording: Recording) -> BeamOrder:
        return BeamOrder(branch=self.k, beam=self.k, nodes=self.packed_tokens - 1)
