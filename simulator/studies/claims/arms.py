"""CaDDTree's counterpart on the measured steps, to see what its convex fit and its stop change."""

from __future__ import annotations

import numpy as np

from simulator.policies.caddtree import CaDDTree
from simulator.policies.checks import whole
from simulator.policy import Lab, Policy, Step


class Staircase(CaDDTree):
    """CaDDTree's order and survivals; most tokens per second anywhere, at the measured costs."""

    def allocate(self, step: Step) -> np.ndarray:
        size, survival = step.draft.size, np.exp(step.draft.score)  # (batch, M)
        context = step.load.context.tolist()
        step_s = np.stack([self._step_s(one, survival.shape[1]) for one in context])
        gain = np.zeros_like(step_s)
        np.cumsum(survival, axis=1, out=gain[:, 1:])
        best = np.argmax((1 + gain) / step_s, axis=1)  # the smallest of equals
        return np.minimum(best, size)

    def _step_s(self, context: float, nodes: int) -> np.ndarray:
        """Seconds of a lone request's step with 0..nodes nodes: (nodes + 1,)."""
        packed = np.arange(nodes + 1) + 1
        draft_s = self._cost.draft_s(1, context)
        return draft_s + self._cost.verify_curve_s(1, packed, context)


class Uniform(Policy):
    """Verify the first `nodes` nodes of every request, in the order that `policy` has fitted."""

    def __init__(self, policy: Policy, nodes: int) -> None:
        self._policy, self._nodes = policy, whole("nodes", nodes)

    def prepare(self, lab: Lab) -> None:
        self._policy.prepare(lab)
        self.order = self._policy.order

    def allocate(self, step: Step) -> np.ndarray:
        return np.minimum(step.draft.size, self._nodes)  # (batch,)
