"""A chain length by live batch size, from a table the operator writes."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.orders.specs import ChainOrder
from simulator.policies.checks import MOST, draft_length, entries, refused
from simulator.policies.shared.rules import FixedWidth, Plain, RulePolicy
from simulator.policy import Lab
from traces.common.settings import Section, whole

ENTRY = "[first batch, last batch (null: no limit), tokens from 0]"
# The longest length of each of SGLang's default tiers (see `sglang_adaptive`).
TABLE = ((1, 7, 7), (8, 31, 3), (32, 63, 1), (64, None, 0))


class Range(Section):
    """Batches `first` to `last` verify `length` draft tokens."""

    first: whole(1, MOST)
    last: whole(1, MOST) | None  # no limit
    length: whole(0, MOST)


def read_batch_table(table: Sequence[Sequence[int | None]]) -> tuple[Range, ...]:
    """Ranges by rising batch that begin at 1 and follow each other without gap or overlap.

    Raises:
        InputError: naming the entry, its value and what is accepted.
    """
    ranges, due = entries("table", table, Range, ENTRY), 1
    for i, item in enumerate(ranges):
        if due is None or item.first != due:
            accepted = due or "nothing behind a range without limit"
            raise refused(f"table[{i}].first", item.first, f"{accepted}, without gap or overlap")
        if item.last is not None and item.last < item.first:
            raise refused(f"table[{i}].last", item.last, f"{item.first} or more, or null")
        due = None if item.last is None else item.last + 1
    return ranges


class BatchSchedule(RulePolicy):
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
            draft_length(f"table[{i}].length", item.length, lab)
        last = self.table[-1].last
        if last is not None and last < lab.max_batch:
            accepted = f"{lab.max_batch}, the largest batch of the run, or null"
            raise refused(f"table[{len(self.table) - 1}].last", last, accepted)

    def rule(self, batch: int) -> FixedWidth | Plain:
        fits = (item.length for item in self.table if item.last is None or batch <= item.last)
        length = next(fits)
        return FixedWidth(self.order, length) if length else Plain()
