"""A chain length by live batch size, from a table the operator writes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.batch_table import length_at, read_batch_table
from simulator.orders.specs import ChainOrder
from simulator.params import draft_length
from simulator.policy import Lab, Load, Policy, Step
from simulator.rules import FixedWidth, Plain
from traces.errors import InputError

# The longest length of each of SGLang's default tiers (see `sglang_adaptive`).
TABLE = ((1, 7, 7), (8, 31, 3), (32, 63, 1), (64, None, 0))


class BatchSchedule(Policy):
    """Verify K tokens of the top-1 chain; K = 0 is plain decoding and pays no draft.

    Args:
        table: ``[first batch, last batch, K]`` by rising batch, as vLLM and TensorRT-LLM take it,
            without gaps or overlaps; the last batch null: no limit.
    """

    order = ChainOrder()

    def __init__(self, table: Sequence[Sequence[int | None]] = TABLE) -> None:
        self.table = read_batch_table(table)

    def prepare(self, lab: Lab) -> None:
        for i, item in enumerate(self.table):
            draft_length(f"table[{i}] length", item.length, lab)
        if self.table[-1].last < lab.max_batch:
            raise InputError(
                f"policy.table ends at batch {self.table[-1].last}; accepted: {lab.max_batch}, the"
                " largest batch of the run, or null"
            )

    def plan(self, load: Load) -> ChainOrder | None:
        return self.order if length_at(self.table, load.batch) else None

    def allocate(self, step: Step) -> np.ndarray:
        return np.minimum(step.draft.size, length_at(self.table, step.batch))  # (batch,)

    def rule(self, batch: int) -> FixedWidth | Plain:
        length = length_at(self.table, batch)
        return FixedWidth(self.order, length) if length else Plain()
