"""TreeSpark (arXiv 2609.22098): calibrated parent-conditioned trees, cut at a survival threshold.

Its ladder of thresholds over the live batch was certified by measurement, not priced at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simulator.calibration import fit_platt, platt_edges
from simulator.ladder import read_ladder, rung_at
from simulator.orders.specs import BestFirstOrder, ChainOrder
from simulator.params import fitting_anchors, whole
from simulator.policy import Lab, Load, Policy, Step

# Published for temperature 0, re-read every round.
LADDER = (
    {"max_batch": 4, "theta": 0.02},
    {"max_batch": 8, "theta": 0.05},
    {"max_batch": None, "theta": 0.15},
)


class TreeSpark(Policy):
    """Verify every node whose estimated survival reaches theta(batch).

    Args:
        nodes: most nodes per request. branch: children a node may have.
        ladder: ``{max_batch, theta}`` by rising batch, the last ``max_batch`` null; ``arm: chain``
            in place of theta verifies the plain top-1 chain instead: theta near 1 would give an
            almost empty tree, not the chain.
    """

    def __init__(
        self, nodes: int = 63, branch: int = 8, ladder: Sequence[Mapping[str, Any]] = LADDER
    ) -> None:
        self._tree = {"nodes": whole("nodes", nodes), "branch": whole("branch", branch)}
        self.ladder = read_ladder(ladder)

    def prepare(self, lab: Lab) -> None:
        """Fit p = sigmoid(a logit q + b) on edges whose ancestors were all accepted."""
        self.near_threshold = 0
        raw = BestFirstOrder(scores="auto", ties="tick", **self._tree)
        anchors = fitting_anchors(lab, "calibration")
        self.platt = fit_platt(*platt_edges(lab.table(raw), lab.recording, anchors))
        platt = (self.platt.a, self.platt.b)
        self.order = BestFirstOrder(scores="auto", ties="tick", platt=platt, **self._tree)

    def plan(self, load: Load) -> BestFirstOrder | ChainOrder:
        chain = rung_at(self.ladder, load.batch).theta is None
        return ChainOrder() if chain else self.order

    def allocate(self, step: Step) -> np.ndarray:
        rung, draft = rung_at(self.ladder, step.batch), step.draft
        if not rung.theta:
            return draft.size  # the whole chain, or at theta 0 a tree that only its cap stops
        low, high = rung.near_log
        self.near_threshold += int(np.count_nonzero((draft.score > low) & (draft.score < high)))
        # Survival falls along the order, so the admitted nodes come first; equality is admitted.
        return np.count_nonzero(draft.score >= rung.log_theta, axis=1)  # (batch,)

    def describe(self) -> dict:
        return {"platt_a": self.platt.a, "platt_b": self.platt.b}
