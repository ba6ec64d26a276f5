"""The same tree budget or the same tree shape every round."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.orders.specs import BestFirstOrder, StaticOrder
from simulator.policies.checks import choice
from simulator.policies.shared.rules import FixedWidth, RulePolicy


class FixedTree(RulePolicy):
    """Verify a whole tree for every request, whatever the load.

    Best-first with `nodes` nodes unless a static shape is given: `widths` (nodes per depth, with
    `tail_chain` one per depth below them) or `branching` (children of every node, per depth). 63
    nodes are 64 packed tokens, so 256 requests fill exactly the 16,384 tokens that the largest
    published step table (B300) covers.
    """

    def __init__(
        self,
        nodes: int = 63,
        branch: int = 8,
        scores: str = "auto",
        widths: Sequence[int] | None = None,
        branching: Sequence[int] | None = None,
        tail_chain: bool = True,
    ) -> None:
        choice("tail_chain", tail_chain, (False, True))
        if widths is None and branching is None:
            self.order = BestFirstOrder(scores=scores, nodes=nodes, branch=branch)
        else:
            self.order = StaticOrder(
                widths=widths, branching=branching, scores=scores, tail_chain=tail_chain
            )

    def rule(self, batch: int) -> FixedWidth:
        return FixedWidth(self.order)
