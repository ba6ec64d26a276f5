"""What a policy does at a batch size, in closed form: decisions from sizes and scores alone.

A policy that has a rule for every batch size needs no other verb: `RulePolicy` plans and allocates
by it, and compiled rounds take it (`simulator.engine.compiled`), both with the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator import compiling
from simulator.orders.specs import Order, OwnOrder
from simulator.orders.table import OrderTable
from simulator.policies.shared import choices
from simulator.policies.shared.choices import Work, work_of
from simulator.policy import Lab, Load, Policy, Step

if TYPE_CHECKING:
    from simulator.cost import StepCost
    from traces.recordings.recording import Recording


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


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """As `priced_survival` decides, which see. Its state is in the arrays of `pricing`.

    tables: of an order's table, calibrated survivals (A, M) and tokens of the stretch (A,).
    """

    order: Order
    pricing: Any
    tables: Callable[[OrderTable], tuple[np.ndarray, np.ndarray]]


Rule = Plain | FixedWidth | Threshold | SharedBudget | Priced
ALL = np.iinfo(np.int64).max
NEAR = 1e-4  # of survival: decisions this close to a threshold are counted and reported


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


class WholeTree(RulePolicy):
    """Verifies its whole order every round, whatever the load.

    `shown`: fields of the order as it is on the recording, which may hold fewer ranks or depths.
    """

    order: OwnOrder
    shown: tuple[str, ...] = ("scores", "branch", "depth_cap")

    def grown(self, recording: Recording) -> OwnOrder:
        """The order for a recording."""
        raise NotImplementedError

    def prepare(self, lab: Lab) -> None:
        self.order = self.grown(lab.recording)
        resolved = self.order.resolved(lab.recording)
        self._fit = {name: getattr(resolved, name) for name in self.shown}

    def rule(self, batch: int) -> FixedWidth:
        return FixedWidth(self.order)

    def describe(self) -> dict:
        return self._fit


class View:
    """A step as the functions of `choices` take it, and the functions: interpreted or compiled.

    Attributes:
        code: the functions. row, score, size, depth, work: what they take.
        weight, offset: (batch,) of `work`, to be filled. width: (batch,) what was chosen.
    """

    def __init__(
        self, step: Step, module: Any = choices, scores: np.ndarray | None = None, entry: str = ""
    ) -> None:
        draft, batch = step.draft, step.batch
        score = fixed(draft.score if scores is None else scores, float)
        work = work_of(batch, score.shape[1])
        self.width, self.weight, self.offset = work.width, work.weight, work.offset
        self.code, flat = functions(batch, module, entry)
        self.row, self.score = flat(np.arange(batch)), flat(score)
        self.size = flat(fixed(draft.size, np.int32))
        depth = draft.depth if draft.depth is not None else np.zeros((batch, 0))
        self.depth = flat(fixed(depth, np.uint8))
        self.flat, self.work = flat, Work(*map(flat, work))
        self._cost = step.cost

    @property
    def prices(self) -> tuple[Any, Any]:
        """`StepCost.prices` and `StepCost.floor`, as the functions take them."""
        plain = self.flat is memoryview
        return (self._cost.prices, self._cost.floor) if plain else self._cost.arrays


def fixed(array: np.ndarray, kind: type) -> np.ndarray:
    """The same values in a read-only C array: one compilation serves all tables."""
    view = np.ascontiguousarray(array, kind).view()
    view.flags.writeable = False
    return view


FLAT_MODULES = (
    "simulator.cost.price",
    "simulator.policies.shared.choices",
    "simulator.policies.priced_survival.accounts",
)


def functions(items: int, module: Any, entry: str = "") -> tuple[SimpleNamespace | Any, Any]:
    """A module of plain functions, as it is or compiled, and what makes arrays fit for it."""
    if compiling.worth(items, entry, *FLAT_MODULES):
        return compiling.compiled(*FLAT_MODULES), lambda array: array
    return module, memoryview


def even_step_s(
    cost: StepCost, batch: int, packed: int, context: int, drafted: bool = True, **terms: Any
) -> float:
    """Seconds of a step of `packed` tokens of every request, drafted as a tree where it drafts."""
    tokens, contexts = np.full(batch, packed), np.full(batch, context)
    return cost.step(tokens, contexts, drafted=drafted, **{"tree": drafted} | terms).total_s


def best_of_batch(
    step: Step, survival: np.ndarray, goal: int, rising: bool = False
) -> tuple[int, np.ndarray]:
    """How many of the best nodes of a step of chains to verify, and of whom: (batch,).

    survival: (batch, M) falling along each row. goal, rising: see `choices.best_nodes`.
    """
    view = View(step, choices, survival)
    here = step.batch, step.context, int(step.draft.size.sum()), False
    aim = goal, 0.0, math.inf, rising, float(step.batch)
    rows = view.row, view.score, view.size, view.depth
    found = view.code.best_nodes(*view.prices, here, aim, *rows, view.work)
    return int(found[0]), view.width


def top_widths(
    score: np.ndarray, size: np.ndarray, budget: int, depth: np.ndarray | None = None
) -> np.ndarray:
    """Nodes per request among the `budget` best of the batch.

    Args:
        score: (B, M) non-increasing along each row. size: (B,) nodes that exist.
        budget: nodes to keep in all. depth: (B, M), for ties by depth.

    Returns:
        (B,) widths that sum to `budget`, or `size` where the budget covers everything.

    Raises:
        ValueError: a row's scores rise.
    """
    exists = np.arange(1, score.shape[1]) < np.asarray(size)[:, None]
    if not np.all((score[:, 1:] <= score[:, :-1]) | ~exists):
        raise ValueError("scores rise along a row: only nested orders share a budget")
    batch = len(score)
    work = work_of(batch, score.shape[1])
    code, flat = functions(batch, choices)
    size, score = np.ascontiguousarray(size, np.int32), np.ascontiguousarray(score, float)
    depth = np.zeros(score.shape, np.uint8) if depth is None else depth.astype(np.uint8)
    rows = flat(np.arange(batch)), flat(score), flat(size), flat(depth)
    code.take_best(*rows, batch, max(0, budget), Work(*map(flat, work)))
    return work.width
