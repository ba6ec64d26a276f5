"""EAGLE-2 (arXiv 2406.16858): the context-aware tree, grown by layers and reranked."""

from __future__ import annotations

from simulator.orders.families.beam import BeamOrder
from simulator.policies.checks import node_count, whole
from simulator.policies.shared.rules import WholeTree
from traces.recordings.recording import Recording


class Eagle2(WholeTree):
    """The top children of the best nodes per depth, reranked by joint probability.

    Its one-token drafter runs once per depth; here one pass scores all depths, so what the rule
    is worth as a shape is compared, not its drafting time.

    Args:
        top_k: children of a node, and nodes of a depth that get any.
        depth: layers, at most those of the recording.
        nodes: of the reranked tree, the root not counted.
    """

    def __init__(self, top_k: int = 10, depth: int = 6, nodes: int = 60) -> None:
        self.top_k, self.depth = node_count("top_k", top_k), whole("depth", depth)
        self.nodes = node_count("nodes", nodes)

    def grown(self, recording: Recording) -> BeamOrder:
        cap = min(self.depth, recording.depths)
        return BeamOrder(self.top_k, self.top_k, self.nodes, depth_cap=cap)
