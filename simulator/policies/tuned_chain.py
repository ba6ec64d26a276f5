"""The top-1 chain at the best length for the live batch size: what a careful operator deploys."""

from __future__ import annotations

import numpy as np

from simulator.calibration.lab import fitting_sequences
from simulator.orders.replay import replay
from simulator.orders.specs import ChainOrder
from simulator.policies.checks import whole
from simulator.policies.shared.rules import FixedWidth, Plain, RulePolicy, even_step_s
from simulator.policy import Lab


class TunedChain(RulePolicy):
    """Verify gamma(B) tokens of the top-1 chain; gamma(B) minimises time per token on `tuning`.

    Every length is replayed along its own trajectory, because round starts move with the length.
    Length 0 is plain decoding and pays no draft. Lengths are found when a batch size first occurs,
    at the typical context of the workload. `max_length` caps the search, null: the whole block.
    """

    order = ChainOrder()

    def __init__(self, max_length: int | None = None) -> None:
        self.max_length = None if max_length is None else whole("max_length", max_length)

    def prepare(self, lab: Lab) -> None:
        self._cost, self._context, self._max_batch = lab.cost, lab.context, lab.max_batch
        self._lengths: dict[int, int] = {}
        table, sequences = lab.table(self.order), fitting_sequences(lab, "tuning")
        longest = min(self.max_length or lab.recording.depths, lab.recording.depths)
        runs = [replay(table, lab.recording, sequences, width) for width in range(longest + 1)]
        self._rounds = np.array([np.sum(run.rounds) for run in runs])  # (longest + 1,)

    def length_at(self, batch: int) -> int:
        """Best length for a live batch; the smaller of equals."""
        if batch not in self._lengths:
            step_s = [
                even_step_s(self._cost, batch, length + 1, self._context, length > 0, tree=False)
                for length in range(len(self._rounds))
            ]
            # every length commits the same tokens, so total time decides
            self._lengths[batch] = int(np.argmin(self._rounds * step_s))
        return self._lengths[batch]

    def rule(self, batch: int) -> FixedWidth | Plain:
        length = self.length_at(batch)
        return FixedWidth(self.order, length) if length else Plain()

    def describe(self) -> dict:
        sizes = [1 << i for i in range(self._max_batch.bit_length())]
        return {"length_by_batch": {str(size): self.length_at(size) for size in sizes}}
