"""Decision lag: a policy that sees load and survivals of k steps ago.

Engines that overlap scheduling with the device decide on step t while step t - 1 runs, so that
what they know is one step old, or more. Wrapped here, a policy is shown the load and the draft of
the step k before, and outcomes k steps late. Its widths go to the requests they were meant for;
requests that were not there get the mean of the others, rounded, and nothing exceeds what was
drafted now. Where the older step drafted nothing, or in another order, there is nothing to go by
and the policy sees the present.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from simulator.policy import Load, Outcome, Policy, Step


class Lagged(Policy):
    """`policy`, `steps` late."""

    def __init__(self, policy: Policy, steps: int) -> None:
        self._policy, self._steps = policy, steps
        self.order, self.drafts = policy.order, policy.drafts
        self._loads: deque[Load] = deque(maxlen=steps + 1)
        self._seen: deque[Step | None] = deque(maxlen=steps + 1)  # by step, None: a plain one
        self._outcomes: deque[Outcome] = deque()

    @property
    def near_threshold(self) -> int:
        """The wrapped policy's."""
        return self._policy.near_threshold

    def plan(self, load: Load):
        """On the load of `steps` ago, or of the first step."""
        self._loads.append(load)
        order = self._policy.plan(self._loads[0])
        if order is None:
            self._seen.append(None)
        return order

    def allocate(self, step: Step) -> np.ndarray:
        """On the draft of `steps` ago, for the requests of now."""
        self._seen.append(step)
        old = self._seen[0] if len(self._seen) > self._steps else None
        if old is None or old.order != step.order:
            return self._policy.allocate(step)
        width = np.asarray(self._policy.allocate(old))
        place = {request: i for i, request in enumerate(old.load.request.tolist())}
        rest = round(float(width.mean()))
        found = [place.get(request) for request in step.load.request.tolist()]
        moved = np.array([rest if i is None else width[i] for i in found], np.int64)  # (batch,)
        size = step.draft.size
        if not step.order.nested:
            return np.where(moved >= 1, size, 0)  # a static shape goes whole or not at all
        return np.minimum(moved, size)

    def observe(self, outcome: Outcome) -> None:
        """Outcomes, as late: each once, in order."""
        self._outcomes.append(outcome)
        if len(self._outcomes) > self._steps:
            self._policy.observe(self._outcomes.popleft())

    def describe(self) -> dict:
        """The wrapped policy's."""
        return self._policy.describe()
