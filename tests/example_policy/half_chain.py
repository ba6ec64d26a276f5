"""A user's own policy: one file, no engine edit."""

import numpy as np

from simulator.orders.specs import ChainOrder
from simulator.policy import Policy, Step


class HalfChain(Policy):
    """Verify the whole top-1 chain at small batches, half of it from `large_batch` requests on."""

    order = ChainOrder()

    def __init__(self, large_batch: int = 16) -> None:
        self.large_batch = large_batch

    def allocate(self, step: Step) -> np.ndarray:
        size = step.draft.size  # (batch,) drafted tokens per request
        return size // 2 if step.batch >= self.large_batch else size
