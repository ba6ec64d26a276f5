"""O5: a batch of constant size over time, bounded request by request.

With an affine floor under the step (see `floor`) the server's total time is at least the sum over
requests of V(first anchor), each the best schedule at the prices
    alpha / B + beta * (1 + w) + gamma / B * context + host     for a round of w nodes,
    alpha_plain / B + gamma / B * context + host                for a plain step.
Every floor gives a bound. The best is found by maximising it over (beta, gamma): V is a minimum of
functions linear in alpha, beta and gamma, and alpha is concave in (beta, gamma), so the bound is
concave in both. Tight where the step's cost is affine.

Host work counts in full if it adds to the device's time, and not at all if it overlaps with it;
bubbles always count. Where kernel launches bound steps (eager mode) they hide nodes' and trees'
work: then a step takes at least the device's time with all work, which the slack can hide no more
of than it adds, and at least the launches with the rest of the work. Both floors give a bound, and
the larger is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from simulator.cost import StepCost
from simulator.studies.bounds.lone import BoundedTexts, Options, Schedule, best_schedule, least_left


@dataclass(frozen=True, slots=True)
class FloorLine:
    """The floor at one pair of slopes, in seconds."""

    alpha: float
    alpha_plain: float
    beta: float  # per packed token, at least 0
    gamma: float  # per token of mean context


@dataclass(frozen=True, slots=True, eq=False)
class StepFloor:
    """Device seconds of every step of one batch size, on a grid that decides about all others.

    Contexts are the profile's measured prefixes inside the range and the range's ends: between
    them the cost is linear in the context, or lies above the line through its ends. (A drafter
    beyond its measured batches, whose slope has a floor of its own, is taken as linear too.)
    """

    context: np.ndarray  # (C,)
    total: np.ndarray  # (M,) packed tokens
    drafted_s: np.ndarray  # (C, M) draft and verify
    plain_s: np.ndarray  # (C,)

    @classmethod
    def of(cls, cost: StepCost, batch: int, widest: int, context: np.ndarray) -> StepFloor:
        """The floor for trees of up to `widest` nodes and (n,) contexts of single requests.

        Dense packing pads to the largest tree: its totals are multiples of the batch, and no
        fewer than the tokens of the trees themselves.
        """
        low, high = float(context.min()), float(context.max())
        rows = (*cost.profile.verify, *cost.profile.draft)
        inside = {float(row.kv_prefix_tokens) for row in rows}
        knots = sorted({low, high} | {one for one in inside if low < one < high})
        dense = cost.packing == "dense"
        total = np.arange(batch, batch * (widest + 1) + 1, batch if dense else 1)
        drafted = [
            cost.verify_curve_s(batch, total, one) + cost.draft_s(batch, one) for one in knots
        ]
        plain = [cost.verify_s(batch, batch, one) for one in knots]
        return cls(np.array(knots), total, np.array(drafted), np.array(plain))

    def launches(self, launch_s: float) -> StepFloor:
        """That of steps whose kernel launches alone take so long."""
        drafted_s = np.full_like(self.drafted_s, launch_s)
        return replace(self, drafted_s=drafted_s, plain_s=np.full_like(self.plain_s, launch_s))

    def line(self, beta: float, gamma: float) -> FloorLine:
        """The highest floor with these slopes."""
        rest = gamma * self.context
        drafted = self.drafted_s - rest[:, None] - beta * self.total
        return FloorLine(float(drafted.min()), float((self.plain_s - rest).min()), beta, gamma)

    @property
    def most_beta(self) -> float:
        """No steeper floor helps: with this slope it rests on the largest total."""
        run = (self.total[-1] - self.total[:-1]).astype(float)
        rise = self.drafted_s[:, -1:] - self.drafted_s[:, :-1]
        return max(0.0, float((rise / run).max(initial=0.0)))

    @property
    def gammas(self) -> tuple[float, float]:
        """Range of the slopes in context; both 0 where the context does not matter."""
        run = np.diff(self.context)[:, None]
        both = np.concatenate([self.plain_s[:, None], self.drafted_s], axis=1)  # (C, 1 + M)
        slopes = np.diff(both, axis=0) / run
        return float(slopes.min(initial=0.0)), float(slopes.max(initial=0.0))


_GOLDEN = (5**0.5 - 1) / 2
_CUTS = 48  # of golden section: the interval shrinks by 1e-10
_CUTS_CONTEXT = 20


@dataclass(frozen=True, slots=True, eq=False)
class BatchedBound:
    """The bound of one batch size, with the floor that gives it."""

    line: FloorLine
    schedule: Schedule  # its seconds: each sequence's share of the server's time


def batched_bound(
    cost: StepCost,
    texts: BoundedTexts,
    batch: int,
    width: np.ndarray,
    *,
    tree: bool,
    ordered: np.ndarray | int,
    widest: int,
) -> BatchedBound:
    """The largest bound that an affine floor gives.

    Args:
        width: (n, D + 1) fewest nodes that accept exactly d, -1 = impossible (`breakpoints`, or
            the depths themselves for free nodes).
        tree: whether rounds with nodes pay a share of the host's tree term.
        ordered: (n, 1) or one for all: nodes the host orders per round.
        widest: most nodes of a request in any step.
    """
    floor = StepFloor.of(cost, batch, widest, texts.context)
    host = host_shares(cost, batch, width, tree, ordered)
    found = _best_bound(floor, texts, batch, width, host)
    if not cost.host.launch_s:
        return found
    host = host_shares(cost, batch, width, tree, ordered, launched=True)
    other = _best_bound(floor.launches(cost.host.launch_s), texts, batch, width, host)
    return max(found, other, key=lambda one: float(one.schedule.seconds.sum()))


def _best_bound(floor: StepFloor, texts: BoundedTexts, batch: int, width, host) -> BatchedBound:
    def options(beta: float, gamma: float) -> Options:
        return options_at(floor.line(beta, gamma), texts, batch, width, host)

    def at_gamma(gamma: float) -> tuple[float, float]:
        """The best beta, and the bound there."""
        return _maximum(lambda b: total_left(options(b, gamma)), 0.0, floor.most_beta, _CUTS)

    low, high = floor.gammas
    gamma = low if low == high else _maximum(lambda g: at_gamma(g)[1], low, high, _CUTS_CONTEXT)[0]
    beta = at_gamma(gamma)[0]
    return BatchedBound(floor.line(beta, gamma), best_schedule(options(beta, gamma)))


def _maximum(function: Callable, low: float, high: float, cuts: int) -> tuple[float, float]:
    """Where a concave function is largest on an interval, and its value: golden section."""
    ends = [(low, function(low)), (high, function(high))]
    if low == high:
        return ends[0]
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(cuts):
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return max([*ends, (left, at_left), (right, at_right)], key=lambda pair: pair[1])


def host_shares(
    cost: StepCost, batch: int, width, tree: bool, ordered, launched: bool = False
) -> tuple[float, np.ndarray]:
    """Host seconds of a plain step's and of a round's share: a number and (n, D + 1).

    launched: without what a step's kernel launches may hide.
    """
    host = cost.host
    trees = (width > 0) & tree & (not launched)
    bubble = trees * (host.bubble_s / batch)
    if host.overlap:
        return 0.0, bubble
    plain = host.plain_s / batch + host.plain_request_s
    rounds = host.round_s / batch + host.request_s + (0.0 if launched else host.node_s * width)
    rounds = rounds + host.ordered_node_s * ordered
    tree_s = host.tree_step_s / batch + host.tree_request_s + host.kv_move_token_s * width
    return plain, rounds + trees * tree_s + bubble


def options_at(line: FloorLine, texts: BoundedTexts, batch: int, width, host) -> Options:
    plain_host, round_host = host
    context = line.gamma / batch * texts.context
    plain_s = line.alpha_plain / batch + context + plain_host
    round_s = (line.alpha / batch + context)[:, None] + line.beta * (1 + width) + round_host
    return Options(texts.start, plain_s, np.where(width < 0, np.inf, round_s), width)


def total_left(options: Options) -> float:
    """The sum of V over the first anchors of all sequences that have one."""
    first = options.start[:-1][np.diff(options.start) > 0]
    return float(least_left(options)[first].sum())
