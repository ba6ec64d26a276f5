"""OPT-Tree (arXiv 2406.17276): the n nodes of most expected acceptance, no deeper than it pays."""

from __future__ import annotations

from simulator.orders.families.beam import BeamOrder
from simulator.policies.checks import node_count, probability, whole
from simulator.policies.shared.rules import WholeTree
from traces.recordings.recording import Recording


class OptTree(WholeTree):
    """The best n nodes of every depth get children; a depth of too little gain is the last.

    The gain is that of E, the sum of the n best path probabilities. One pass scores all depths
    here, so a depth saved saves no drafting.

    Args:
        nodes: n; the root does not count.
        min_gain: the paper's delta. depth: layers, at most those of the recording.
    """

    def __init__(self, nodes: int = 50, min_gain: float = 0.5, depth: int = 10) -> None:
        self.nodes, self.depth = node_count("nodes", nodes), whole("depth", depth)
        self.min_gain = probability("min_gain", min_gain)

    def grown(self, recording: Recording) -> BeamOrder:
        n, cap = self.nodes, min(self.depth, recording.depths)
        return BeamOrder(n, n, n, depth_cap=cap, min_gain=self.min_gain)
