"""The uniform arm of a comparison: another policy's order, cut at one width for everyone."""

from __future__ import annotations

import numpy as np

from simulator.params import whole
from simulator.policy import Lab, Policy, Step


class Uniform(Policy):
    """Verify the first `nodes` nodes of every request, in the order that `policy` has fitted."""

    def __init__(self, policy: Policy, nodes: int) -> None:
        self._policy, self._nodes = policy, whole("nodes", nodes)

    def prepare(self, lab: Lab) -> None:
        self._policy.prepare(lab)
        self.order = self._policy.order

    def allocate(self, step: Step) -> np.ndarray:
        return np.minimum(step.draft.size, self._nodes)  # (batch,)
