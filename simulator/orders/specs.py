"""What an order is: pure data, hashable, so that tables can be cached by it.

An order is the fixed sequence in which the nodes of a draft tree are verified; a policy picks one
and decides how many of its first nodes to verify. `simulator.orders.build` turns it into a table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

from simulator.orders.families.base import OwnOrder
from traces.common.errors import InputError


class OrderError(InputError):
    """A field's value that an order, or the recording it is built on, does not take."""

    field = ""
    value: Any = None
    accepted = ""

    def under(self, where: str) -> InputError:
        """The same, of the key ``where.field``."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return InputError(f"{where}.{self.field} is {value!r}; accepted: {self.accepted}")


def refusal(
    order: str, field: str, value: Any, accepted: str, message: str | None = None
) -> OrderError:
    """The error of an order's field.

    Args:
        message: in place of ``ORDER FIELD: VALUE, accepted: ACCEPTED``.
    """
    error = OrderError(message or f"{order} {field}: {value!r}, accepted: {accepted}")
    error.field, error.value, error.accepted = field, value, accepted
    return error


SCORES = ("auto", "parent", "marginal", "marginal_biased")
TIES = ("depth", "tick")
MAX_NODES = 32766  # ranks are int16, and 32767 says absent


@dataclass(frozen=True, slots=True)
class ChainOrder:
    """The drafter's argmax chain, `length` tokens (None: to the last depth).

    Block drafters: the argmax of every depth. Semi-autoregressive: the argmax of the conditional
    law given the previous argmax token, the anchor's token first.
    """

    length: int | None = None
    nested: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _set(self, "length", _count("ChainOrder length", self.length, optional=True))


@dataclass(frozen=True, slots=True)
class BestFirstOrder:
    """Nodes by falling path score, a heap's pops; each pop pushes the node's top `branch` children.

    scores: "parent" (conditional on the node's true parent), "marginal" (no Markov bias),
    "marginal_biased" (the bias of the greedy chain's token at the previous depth, one child list
    per depth), "auto" (parent where the law depends on it, marginal for pools; all coincide there).
    ties: "depth" shallower first, then earlier push (CAST, arXiv 2610.00321); "tick" earlier push
    (TreeSpark, arXiv 2609.22098). platt: (a, b) maps every edge's q to sigmoid(a logit q + b)
    before the path product; None keeps q. floor: log survival below which no node is emitted.
    """

    scores: str = "auto"
    nodes: int = 63
    branch: int = 8
    depth_cap: int | None = None
    ties: str = "depth"
    platt: tuple[float, float] | None = None
    floor: float | None = None
    nested: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _choice("BestFirstOrder scores", self.scores, SCORES)
        _choice("BestFirstOrder ties", self.ties, TIES)
        _set(self, "nodes", _count("BestFirstOrder nodes", self.nodes))
        _set(self, "branch", _count("BestFirstOrder branch", self.branch))
        _set(self, "depth_cap", _count("BestFirstOrder depth_cap", self.depth_cap, optional=True))
        _set(self, "platt", _platt(self.platt))
        _set(self, "floor", _floor(self.floor))


@dataclass(frozen=True, slots=True)
class StaticOrder:
    """A tree whose shape ignores the scores, emitted depth by depth and verified whole.

    widths: nodes per depth. Those of a depth are the children with the smallest sums of ranks
    along their path, ties to the earlier parent, then the lower rank; with `tail_chain` the depths
    after the last width have one node each. branching: children of every node, per depth.
    prefixes: widths other than the whole tree at which it may be verified too.
    """

    widths: tuple[int, ...] | None = None
    branching: tuple[int, ...] | None = None
    scores: str = "auto"
    tail_chain: bool = True
    prefixes: tuple[int, ...] = ()
    nested: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _choice("StaticOrder scores", self.scores, SCORES)
        if (self.widths is None) == (self.branching is None):
            raise refusal(
                "StaticOrder",
                "branching",
                self.branching,
                "null with widths, a list without",
                f"StaticOrder widths {self.widths} and branching {self.branching}:"
                " exactly one of the two is accepted",
            )
        for name in ("widths", "branching", "prefixes"):
            _set(self, name, _counts(f"StaticOrder {name}", getattr(self, name)))
        if self.widths == () or self.branching == ():
            field = "branching" if self.widths is None else "widths"
            message = "StaticOrder: no depths given, needs at least one"
            raise refusal("StaticOrder", field, (), "at least one depth", message)


Order = ChainOrder | BestFirstOrder | StaticOrder | OwnOrder


def _set(spec, name: str, value) -> None:
    object.__setattr__(spec, name, value)


def _count(name: str, value, optional: bool = False) -> int | None:
    if value is None and optional:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= value <= MAX_NODES:
        raise refusal(*name.split(), value, f"an integer in 1..{MAX_NODES}")
    return int(value)


def _counts(name: str, values) -> tuple[int, ...] | None:
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise refusal(*name.split(), values, "a list of integers")
    return tuple(_count(name, value) for value in values)


def _choice(name: str, value, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise refusal(*name.split(), value, ", ".join(accepted))


def _floor(value) -> float | None:
    if value is None:
        return None
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not -float("inf") < value <= 0:
        raise refusal("BestFirstOrder", "floor", value, "a finite log, at most 0")
    return float(value)


def _platt(pair) -> tuple[float, float] | None:
    if pair is None:
        return None
    values = tuple(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else ()
    finite = len(values) == 2 and all(
        isinstance(v, Real) and not isinstance(v, bool) and abs(v) < float("inf") for v in values
    )
    # a <= 0 would put unlikely siblings before likely ones
    if not finite or values[0] <= 0:
        raise refusal("BestFirstOrder", "platt", pair, "(a, b) finite with a > 0")
    return float(values[0]), float(values[1])
