"""What a policy does at a batch size, in closed form: decisions from sizes and scores alone.

A policy that has a rule for every batch size needs no other verb: `RulePolicy` plans and allocates
by it, and compiled rounds take it (`simulator.engine.compiled`), both with the same functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from simulator import compiling
from simulator.orders.specs import Order
from simulator.policies.shared import choices
from simulator.policies.shared.choices import Work, work_of
from simulator.policy import Load, Policy, Step


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain decoding step: no draft."""

    order: None = None


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

    At most the first `most` nodes of a request (None: all). See `choices.take_shared`.
    """

    order: Order
    nodes: int
    most: int | None = None


Rule = Plain | FixedWidth | Threshold | SharedBudget
ALL = np.iinfo(np.int64).max


class RulePolicy(Policy):
    """A policy that is its `rule`; state it for every batch size."""

    _start = math.inf  # where shared budgets begin to look: their time depends on it, nothing else

    def plan(self, load: Load) -> Order | None:
        return self.rule(load.batch).order

    def allocate(self, step: Step) -> np.ndarray:
        """(batch,) nodes by the rule."""
        rule, view = self.rule(step.batch), View(step)
        size, score, work = view.size, view.score, view.work
        if isinstance(rule, SharedBudget):
            most = ALL if rule.most is None else rule.most
            asked = most, rule.nodes, self._start
            self._start = view.code.take_shared(view.row, score, size, step.batch, *asked, work)
        elif isinstance(rule, Threshold):
            asked = rule.log_theta, rule.near_low, rule.near_high
            taken = view.code.take_above(view.row, score, size, step.batch, *asked, work.width)
            self.near_threshold += int(taken)
        else:
            most = ALL if rule.width is None else rule.width
            view.code.take_fixed(view.row, size, step.batch, most, work.width)
        return view.width


class View:
    """A step as the functions of `choices` take it, and the functions: interpreted or compiled.

    Attributes:
        code: the functions. row, score, size, depth, work: what they take. width: (batch,) what
            they chose.
    """

    def __init__(self, step: Step, module: Any = choices, scores: np.ndarray | None = None) -> None:
        draft, batch = step.draft, step.batch
        score = np.ascontiguousarray(draft.score if scores is None else scores, float)
        work = work_of(batch, score.shape[1])
        self.width = work.width
        self.code, flat = functions(batch, module)
        self.row, self.score = flat(np.arange(batch)), flat(score)
        self.size = flat(np.ascontiguousarray(draft.size, np.int32))
        depth = draft.depth if draft.depth is not None else np.zeros((batch, 0))
        self.depth = flat(np.ascontiguousarray(depth, np.uint8))
        self.flat, self.work = flat, Work(*map(flat, work))
        prices = step.cost.prices, step.cost.floor
        self.prices, self.floor = prices if flat is memoryview else step.cost.arrays


FLAT_MODULES = (
    "simulator.cost.price",
    "simulator.policies.shared.choices",
    "simulator.policies.priced_survival.accounts",
)


def functions(items: int, module: Any) -> tuple[SimpleNamespace | Any, Any]:
    """A module of plain functions, as it is or compiled, and what makes arrays fit for it."""
    if compiling.worth(items):
        return compiling.compiled(*FLAT_MODULES), lambda array: array
    return module, memoryview
