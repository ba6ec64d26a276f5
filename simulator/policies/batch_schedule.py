"""A chain length by live batch size, from a table the operator writes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.orders.specs import ChainOrder
from simulator.policies.checks import draft_length
from simulator.policies.checks import entries as listed
from simulator.policies.shared.rules import FixedWidth, Plain, RulePolicy
from simulator.policy import Lab
from traces.common.errors import InputError

# ---------------- A table from live batch sizes to draft lengths, as serving engines take it.


_ENTRY = "[first batch, last batch (null: no limit), tokens from 0]"


@dataclass(frozen=True, slots=True)
class Range:
    """Batches `first` to `last` verify `length` draft tokens."""

    first: int
    last: float  # inf: no limit
    length: int


def read_batch_table(entries: Iterable[Any]) -> tuple[Range, ...]:
    """Ranges by rising batch that begin at 1 and follow each other without gap or overlap.

    Raises:
        InputError: naming the entry, its value and what is accepted.
    """
    ranges = tuple(
        _range(f"policy.table[{i}]", entry)
        for i, entry in enumerate(listed("table", entries, _ENTRY))
    )
    if not ranges:
        raise InputError(f"policy.table is empty; accepted: a list of {_ENTRY}")
    due = 1
    for i, item in enumerate(ranges):
        if item.first != due:
            wrong = "overlaps the one before" if item.first < due else "leaves a gap"
            accepted = "nothing behind a range without limit" if due == math.inf else f"{due}"
            raise InputError(
                f"policy.table[{i}] begins at batch {item.first} and {wrong}; accepted: {accepted}"
            )
        due = item.last + 1
    return ranges


def length_at(ranges: tuple[Range, ...], batch: int) -> int:
    """Draft tokens at a live batch that the table covers."""
    return next(item.length for item in ranges if batch <= item.last)


def _range(where: str, entry: Any) -> Range:
    values = list(entry) if isinstance(entry, Sequence) and not isinstance(entry, str) else []
    first, last, length = values if len(values) == 3 else (None, None, None)
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in (first, length))
    limit = last is None or (isinstance(last, int) and not isinstance(last, bool))
    if not (whole and limit and first >= 1 and length >= 0 and (last is None or last >= first)):
        raise InputError(f"{where} is {entry!r}; accepted: {_ENTRY}")
    return Range(first, math.inf if last is None else last, length)


# The longest length of each of SGLang's default tiers (see `sglang_adaptive`).
TABLE = ((1, 7, 7), (8, 31, 3), (32, 63, 1), (64, None, 0))


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
            draft_length(f"table[{i}] length", item.length, lab)
        if self.table[-1].last < lab.max_batch:
            raise InputError(
                f"policy.table ends at batch {self.table[-1].last}; accepted: {lab.max_batch}, the"
                " largest batch of the run, or null"
            )

    def rule(self, batch: int) -> FixedWidth | Plain:
        length = length_at(self.table, batch)
        return FixedWidth(self.order, length) if length else Plain()
