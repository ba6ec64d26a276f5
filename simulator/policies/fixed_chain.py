"""The drafter's top-1 chain, cut at a fixed length."""

from __future__ import annotations

from simulator.orders.specs import ChainOrder
from simulator.policies.checks import draft_length, whole
from simulator.policies.shared.rules import FixedWidth, RulePolicy
from simulator.policy import Lab


class FixedChain(RulePolicy):
    """Verify the first `length` tokens of the drafter's top-1 chain, whatever the load.

    DFlash verifies its whole block (length 15), DSpark's published block has 7 depths.
    """

    order = ChainOrder()

    def __init__(self, length: int = 7) -> None:
        self.length = whole("length", length)

    def prepare(self, lab: Lab) -> None:
        draft_length("length", self.length, lab)

    def rule(self, batch: int) -> FixedWidth:
        return FixedWidth(self.order, self.length)
