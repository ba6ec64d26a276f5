"""What an order is: pure data, hashable, so that tables can be cached by it.

An order is the fixed sequence in which the nodes of a draft tree are verified; a policy picks one
and decides how many of its first nodes to verify. `simulator.orders.build` turns it into a table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from traces.common.errors import InputError

if TYPE_CHECKING:
    from simulator.orders.scores import BlockScores
    from traces.recordings.recording import Recording

SCORES = ("auto", "parent", "marginal", "marginal_biased")
TIES = ("depth", "tick")
MAX_NODES = 32766  # ranks are int16, and 32767 says absent


# ---------------- What a field takes.


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


@dataclass(frozen=True, slots=True)
class Kind:
    """What a field takes, in words, and how it is read: a ValueError for anything else."""

    accepted: str
    read: Callable[[Any], Any]


def check(spec: Any, **kinds: Kind | list[Kind]) -> None:
    """Put into each field of a new spec what its kind reads; in a list: into a tuple of them.

    None is taken as it is where it is the default. Raises OrderError.
    """
    for name, kind in kinds.items():
        value, order = getattr(spec, name), type(spec).__name__
        if value is None and spec.__dataclass_fields__[name].default is None:
            continue
        if isinstance(kind, list):
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise refusal(order, name, value, f"a list: {kind[0].accepted}")
            read = tuple(_read(order, name, one, kind[0]) for one in value)
        else:
            read = _read(order, name, value, kind)
        object.__setattr__(spec, name, read)


def _read(order: str, name: str, value: Any, kind: Kind) -> Any:
    try:
        return kind.read(value)
    except (TypeError, ValueError):
        raise refusal(order, name, value, kind.accepted) from None


def whole(low: int, high: int = MAX_NODES) -> Kind:
    """Integers from `low` to `high`, numpy's as well."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral) or not low <= value <= high:
            raise ValueError
        return int(value)

    return Kind(f"an integer in {low}..{high}", read)


def one_of(names: tuple[str, ...]) -> Kind:
    """One of these texts."""
    return Kind(", ".join(names), lambda value: names[names.index(value)])


def finite(value: Any, low: float = -sys.float_info.max, high: float = sys.float_info.max) -> float:
    """`value` as a float from `low` to `high`; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= value <= high:
        raise ValueError
    return float(value)


def _rising_pair(value: Any) -> tuple[float, float]:
    a, b = map(finite, value)
    if a <= 0:  # would put unlikely siblings before likely ones
        raise ValueError
    return a, b


COUNT = whole(1)
FLOOR = Kind("a finite log, at most 0", lambda value: finite(value, high=0))
PLATT = Kind("(a, b) finite with a > 0", _rising_pair)


# ---------------- Orders that `orders.build` knows.


@dataclass(frozen=True, slots=True)
class ChainOrder:
    """The drafter's argmax chain, `length` tokens (None: to the last depth).

    Block drafters: the argmax of every depth. Semi-autoregressive: the argmax of the conditional
    law given the previous argmax token, the anchor's token first.
    """

    length: int | None = None
    nested: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, length=COUNT)


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
        check(self, scores=one_of(SCORES), ties=one_of(TIES), nodes=COUNT, branch=COUNT)
        check(self, depth_cap=COUNT, platt=PLATT, floor=FLOOR)


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
        check(self, scores=one_of(SCORES))
        if (self.widths is None) == (self.branching is None):
            raise refusal(
                "StaticOrder",
                "branching",
                self.branching,
                "null with widths, a list without",
                f"StaticOrder widths {self.widths} and branching {self.branching}:"
                " exactly one of the two is accepted",
            )
        check(self, widths=[COUNT], branching=[COUNT], prefixes=[COUNT])
        if not self.levels:
            message = "StaticOrder: no depths given, needs at least one"
            raise refusal("StaticOrder", self.given, (), "at least one depth", message)

    @property
    def given(self) -> str:
        """The field that states the shape."""
        return "widths" if self.branching is None else "branching"

    @property
    def levels(self) -> tuple[int, ...]:
        """That field's value, a number per depth."""
        return getattr(self, self.given)


# ---------------- Families that build their own tables: sampled slots, beams, a user's own.

Columns = dict[str, np.ndarray]  # the arrays of an OrderTable, see there


@dataclass(frozen=True, slots=True)
class Draws:
    """Where the drafts of sampled slots come from: keyed by request and position, or a stream."""

    seeds: np.ndarray  # (n,) of the requests
    output_index: np.ndarray  # (n,) of their anchors
    rng: np.random.Generator | None = None  # given: independent draws in place of keyed ones


class OwnOrder:
    """Base of frozen dataclasses that live in one file; whatever takes an order takes them as well.

    `version` goes into the cache's key: raise it when tables change.
    """

    __slots__ = ()
    nested: ClassVar[bool] = True  # any first w nodes may be verified
    sampled: ClassVar[bool] = False  # children are drawn, and verified by recursive rejection
    chain: ClassVar[bool] = False  # never branches
    version: ClassVar[int] = 1

    def resolved(self, recording: Recording) -> OwnOrder:
        """The spec with defaults filled in; InputError if the recording holds too little."""
        return self

    def columns(self, recording: Recording) -> Columns:
        """The arrays of the table over all anchors, hit ranks included."""
        raise NotImplementedError

    def block_columns(
        self, block: BlockScores, realised: np.ndarray | None, draws: Draws | None
    ) -> Columns:
        """The same for n live blocks; realised (n, D) or None: hit ranks are ABSENT."""
        raise NotImplementedError


Order = ChainOrder | BestFirstOrder | StaticOrder | OwnOrder


# ---------------- What a spec comes to on D depths: limits, sizes, static shapes.


def resolve(spec: Order, depths: int, ranks: int, conditioned: bool, source: str) -> Order:
    """`spec` with every default filled in, so that equal orders compare (and cache) equal.

    depths D and ranks (children known per node) are what the scores hold; conditioned says
    whether they depend on the parent. Raises InputError, naming `source`, for a spec beyond them.
    """
    if isinstance(spec, ChainOrder):
        length = depths if spec.length is None else spec.length
        within("ChainOrder length", length, depths, "depths", source)
        return BestFirstOrder(limited_scores("auto", conditioned), length, 1, length)
    if isinstance(spec, BestFirstOrder):
        cap = limited_depth(spec, depths, source)
        within("BestFirstOrder branch", spec.branch, ranks, "ranks per depth", source)
        nodes = min(spec.nodes, full_tree(spec.branch, cap))
        kind = limited_scores(spec.scores, conditioned)
        return replace(spec, scores=kind, nodes=nodes, depth_cap=cap)
    if isinstance(spec, StaticOrder):
        given = spec.given, spec.levels
        within("StaticOrder depths", len(spec.levels), depths, "depths", source, *given)
        shape = static_shape(spec, depths)
        rank = int(shape[:, 1].max()) + 1
        within("StaticOrder rank", rank, ranks, "ranks per depth", source, *given)
        if spec.prefixes:
            within("StaticOrder prefixes", max(spec.prefixes), len(shape), "nodes", "the shape")
        return replace(spec, scores=limited_scores(spec.scores, conditioned))
    raise InputError(f"order: {spec!r}, accepted: a ChainOrder, a BestFirstOrder or a StaticOrder")


def limited_scores(scores: str, conditioned: bool) -> str:
    """The kind of scores meant: all coincide where there is no Markov head."""
    if not conditioned:
        return "marginal"
    return "parent" if scores == "auto" else scores


def limited_depth(spec: Any, depths: int, source: str) -> int:
    """The spec's `depth_cap`, or every depth; InputError for more than `source` holds."""
    cap = spec.depth_cap or depths
    within(f"{type(spec).__name__} depth_cap", cap, depths, "depths", source)
    return cap


def within(
    what: str,
    value: int,
    limit: int,
    unit: str,
    source: str,
    field: str | None = None,
    given: Any = None,
) -> None:
    """Raise about what an order needs more of than there is.

    what: order and field. field, given: of the field whose value asks for it, where it is another.
    """
    if value <= limit:
        return
    order, own = what.split()
    accepted, asked = f"up to {limit}, the {unit} of {source}", value
    if field is not None:
        accepted, asked = f"no more than {limit} {unit} ({value} here), as {source} has", given
    message = f"{what}: {value}, but {source} holds {limit} {unit}"
    raise refusal(order, field or own, asked, accepted, message)


def full_tree(branch: int, depths: int) -> int:
    """Nodes of the complete tree, or MAX_NODES if it has more."""
    total, level = 0, 1
    for _ in range(depths):
        level *= branch
        total += level
        if total > MAX_NODES:
            return MAX_NODES
    return total


def static_shape(spec: StaticOrder, depths: int) -> np.ndarray:
    """(M, 3) int64 of parent index (-1 the anchor), 0-based rank, 1-based depth per node."""
    levels = spec.levels
    if spec.branching is None and spec.tail_chain:
        levels += (1,) * (depths - len(levels))
    nodes: list[tuple[int, int, int]] = []
    level = [(-1, 0)]  # (node, sum of ranks along its path)
    for depth, count in enumerate(levels, start=1):
        chosen = [(total + rank, node, rank) for node, total in level for rank in range(count)]
        if spec.branching is None:
            chosen = sorted(chosen)[:count]
        level = [(len(nodes) + k, total) for k, (total, _, _) in enumerate(chosen)]
        nodes += [(node, rank, depth) for _, node, rank in chosen]
        if len(nodes) > MAX_NODES:
            message = f"StaticOrder: over {MAX_NODES} nodes at depth {depth}"
            accepted = f"up to {MAX_NODES} nodes"
            raise refusal("StaticOrder", spec.given, spec.levels, accepted, message)
    return np.array(nodes, dtype=np.int64)
