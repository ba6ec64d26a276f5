"""An affine floor under the cost of a batched step, so that requests can be bounded one by one.

A step of B requests at mean context c with m packed tokens in all takes at least
    alpha + beta * m + gamma * c          if it drafts, and
    alpha_plain + gamma * c               if it does not,
both plus host work, which is linear in requests and nodes. So each request of a step has a share
of its own, 1 / B, beta * (1 + w) and gamma / B * c, whatever the others do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.cost import StepCost


@dataclass(frozen=True, slots=True)
class Line:
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
        knots = _knots(cost, float(context.min()), float(context.max()))
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

    def line(self, beta: float, gamma: float) -> Line:
        """The highest floor with these slopes."""
        rest = gamma * self.context
        drafted = self.drafted_s - rest[:, None] - beta * self.total
        return Line(float(drafted.min()), float((self.plain_s - rest).min()), beta, gamma)

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


def _knots(cost: StepCost, low: float, high: float) -> list[float]:
    rows = (*cost.profile.verify, *cost.profile.draft)
    inside = {float(row.kv_prefix_tokens) for row in rows if low < row.kv_prefix_tokens < high}
    return sorted({low, high} | inside)
