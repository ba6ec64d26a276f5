"""What a lone request can do at every anchor: a plain step, or the cheapest round by acceptance.

Let k_d be the rank of the realised path's node at depth d: the first w nodes of a nested order
accept the number of k_d up to w. So at most D + 1 rounds matter per anchor, one for each number of
accepted tokens; its cheapest width is k_d wherever the cost does not fall with the width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.bounds.prices import lone_prices
from simulator.bounds.texts import Texts
from simulator.cost import StepCost
from simulator.orders.table import OrderTable
from simulator.widths import verifies_trees


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """At n anchors of S sequences: the plain step, and rounds that accept exactly 0..D tokens."""

    start: np.ndarray  # (S + 1,) first anchor of each sequence
    plain_s: np.ndarray  # (n,)
    round_s: np.ndarray  # (n, D + 1), inf where no width accepts exactly d
    width: np.ndarray  # (n, D + 1) nodes of that round, -1 = none

    @property
    def left(self) -> np.ndarray:
        """Outputs behind every anchor, which is all that a round can commit: (n,)."""
        count = len(self.plain_s)
        end = np.repeat(self.start[1:], np.diff(self.start))
        return end - np.arange(count)


def breakpoints(table: OrderTable, anchors: np.ndarray) -> np.ndarray:
    """The widths that matter, {0, k_1, k_2, ...}: (n, D + 1) smallest that accepts exactly d.

    -1 where none does. Orders that are not nested have their declared widths alone.
    """
    smallest = np.arange(table.max_nodes + 1, dtype=float)[None]
    return _cheapest(table, anchors, np.zeros(len(anchors), np.int64), smallest)[1]


def order_options(table: OrderTable, texts: Texts, cost: StepCost) -> Options:
    """Rounds in `table`'s order, as the server charges them (O1 and O2)."""
    anchors = texts.anchors
    prices = lone_prices(
        cost,
        texts.context,
        table.max_nodes,
        tree=verifies_trees(table),
        ordered=table.size[anchors],
    )
    round_s, width = _cheapest(table, anchors, prices.row, prices.round_s)
    return Options(texts.start, prices.plain_s, round_s, width)


def free_options(
    prefix: np.ndarray, depths: int, nodes: int, texts: Texts, cost: StepCost
) -> Options:
    """Rounds that verify the realised path alone, as far as the pool holds it (O3).

    Any order's round with the same acceptance verifies those nodes and more. Where the measured
    cost falls with the width, up to `nodes` more are verified for nothing; no tree term is paid,
    and no more nodes are ordered than verified.

    Args:
        prefix: (n,) longest realised prefix inside the pool, see `pool`. depths: D.
    """
    prices = lone_prices(cost, texts.context, max(nodes, depths), tree=False)
    least_s, width = _least_from(prices.round_s)
    accepted = np.arange(depths + 1)
    inside = accepted <= prefix[:, None]  # (n, D + 1)
    round_s = np.where(inside, least_s[prices.row, : depths + 1], np.inf)
    width = np.where(inside, width[prices.row, : depths + 1], -1)
    return Options(texts.start, prices.plain_s, round_s, width)


def _cheapest(table: OrderTable, anchors, row, round_s) -> tuple[np.ndarray, np.ndarray]:
    from simulator.bounds.compiled import cheapest

    allowed = np.ones(table.max_nodes + 1, bool)
    if not table.nested:
        allowed[1:] = False
        allowed[list(table.widths_allowed())] = True
    hits = table.hit_rank[anchors].astype(np.int64)
    return cheapest(hits, table.size[anchors].astype(np.int64), row, round_s, allowed)


def _least_from(round_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every width the least seconds of it or a larger one, and where: two (R, W + 1)."""
    best, at = round_s.copy(), np.tile(np.arange(round_s.shape[1]), (len(round_s), 1))
    for width in range(round_s.shape[1] - 2, -1, -1):
        later = best[:, width + 1] < best[:, width]
        best[later, width] = best[later, width + 1]
        at[later, width] = at[later, width + 1]
    return best, at
