"""What a policy does at a batch size, in closed form: decisions that compiled rounds can make.

A rule says what `plan` and `allocate` would, from the order's sizes and scores alone. A policy that
has one for every batch size takes no part of `observe`, and keeps no state from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.orders.specs import Order


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain decoding step: no draft."""


@dataclass(frozen=True, slots=True)
class FixedWidth:
    """The first `width` nodes of every request, or all there are; None: always all."""

    order: Order
    width: int | None = None


@dataclass(frozen=True, slots=True)
class Threshold:
    """The nodes whose score is at least `log_theta`, of an order whose scores fall.

    Nodes of a score above `near_low` and below `near_high` are counted as near the threshold.
    """

    order: Order
    log_theta: float
    near_low: float
    near_high: float


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """The `nodes` best nodes of the whole batch; ties by request, then node.

    At most the first `most` nodes of a request (None: all). See `selection.top_widths`.
    """

    order: Order
    nodes: int
    most: int | None = None


Rule = Plain | FixedWidth | Threshold | SharedBudget
