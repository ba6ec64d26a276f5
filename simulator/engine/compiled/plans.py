"""The rules of a policy by batch size, grouped by what compiled code takes at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.compiled import kernel
from simulator.engine.compiled.kernel import Rules, Table
from simulator.engine.compiled.rules import FixedWidth, Plain, Rule, SharedBudget, Threshold
from simulator.orders.specs import Order
from simulator.orders.table import OrderTable
from simulator.policies.checks import verifies_trees
from simulator.policy import Policy

ALL = np.iinfo(np.int64).max
_KIND = {
    Plain: kernel.PLAIN,
    FixedWidth: kernel.FIXED,
    Threshold: kernel.THRESHOLD,
    SharedBudget: kernel.SHARED,
}


@dataclass(frozen=True, slots=True)
class Group:
    """What the batch sizes of a group have in common."""

    kind: int
    order: Order | None = None
    most: int | None = None


class Plans:
    """The rules of every batch size, and the tables behind them, each made when first needed."""

    def __init__(self, policy: Policy, capacity: int, tables) -> None:
        rules = [policy.rule(batch) for batch in range(1, capacity + 1)]
        groups = [_group(rule) for rule in rules]
        self._groups = list(dict.fromkeys(groups))
        places = [-1, *(self._groups.index(group) for group in groups)]
        number, theta, low, high = zip(*map(_numbers, [Plain(), *rules]), strict=True)
        self.rules = Rules(
            np.array(places, np.int64),
            np.array(number, np.int64),
            *(np.array(values, float) for values in (theta, low, high)),
        )
        self._fed, self._order_table = policy.drafts, tables
        self._tables: dict[int, Table] = {}

    def at(self, batch: int) -> Table:
        """The table of a batch size.

        Raises:
            ValueError: scores that rise along a row, of which a rule takes the first.
        """
        place = int(self.rules.group[batch])
        if place not in self._tables:
            self._tables[place] = self._made(place, self._groups[place])
        return self._tables[place]

    def _made(self, place: int, group: Group) -> Table:
        most = ALL if group.most is None else group.most
        if group.order is None:
            return Table(place, group.kind, most, False, self._fed, *_NO_ORDER)
        table = self._order_table(group.order)
        if group.kind in (kernel.THRESHOLD, kernel.SHARED) and not falling(table):
            raise ValueError("scores rise along a row: only nested orders share a budget")
        arrays = (
            _plain(table.score, np.float64),
            _plain(table.size, np.int32),
            _plain(table.hit_rank, np.int16),
            _plain(table.ties, np.int32),
        )
        return Table(place, group.kind, most, verifies_trees(table), self._fed, *arrays)


def falling(table: OrderTable, at_once: int = 1 << 14) -> bool:
    """Whether no score exceeds the one before it, among the nodes that exist."""
    slot = np.arange(1, table.score.shape[1])
    for first in range(0, len(table.size), at_once):
        score = table.score[first : first + at_once]
        exists = slot < table.size[first : first + at_once, None]
        if not np.all((score[:, 1:] <= score[:, :-1]) | ~exists):
            return False
    return True


def _group(rule: Rule) -> Group:
    most = rule.most if isinstance(rule, SharedBudget) else None
    return Group(_KIND[type(rule)], getattr(rule, "order", None), most)


def _numbers(rule: Rule) -> tuple[int, float, float, float]:
    """Width or nodes, threshold, and what is near it."""
    if isinstance(rule, Threshold):
        return 0, rule.log_theta, rule.near_low, rule.near_high
    if isinstance(rule, SharedBudget):
        return rule.nodes, 0.0, 0.0, 0.0
    width = rule.width if isinstance(rule, FixedWidth) else 0
    return ALL if width is None else width, 0.0, 0.0, 0.0


def _plain(array: np.ndarray, kind: type) -> np.ndarray:
    """The same values as a read-only C array of one type: one compilation serves all tables."""
    array = np.ascontiguousarray(array, kind).view()
    array.flags.writeable = False
    return array


_NO_ORDER = (
    _plain(np.zeros((1, 1)), np.float64),
    _plain(np.zeros(1), np.int32),
    _plain(np.zeros((1, 1)), np.int16),
    _plain(np.zeros(1), np.int32),
)
