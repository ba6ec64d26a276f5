"""BASTION (arXiv 2605.29727): best-first trees, stopped where a fitted roofline says so.

Verified by draw-and-match at every temperature, which leaves the target's law as it is. The
released code accepts by argmax above temperature 0, which does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.orders.families.marginal import AUTO, SCORES, MarginalOrder, marginal_scores
from simulator.policies.checks import choice, node_count
from simulator.policies.shared.stop_rules import probed
from simulator.policy import Lab, Policy, Step
from traces.common.errors import InputError


@dataclass(frozen=True, slots=True)
class FittedRoofline:
    """max over lines of level + slope * x; each is (level, slope)."""

    memory: tuple[float, float]
    compute: tuple[float, float]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Values at x, any shape."""
        (a, b), (c, d) = self.memory, self.compute
        return np.maximum(a + b * np.asarray(x, float), c + d * np.asarray(x, float))


def fit_roofline(x: np.ndarray, y: np.ndarray, sigma: np.ndarray) -> FittedRoofline:
    """Two lines of non-negative slope, one through each side of the split that fits best.

    Every split of the ascending points is tried, and judged by the weighted squared error of the
    larger of its two lines over all points.

    Args:
        x, y: (n,). sigma: (n,) standard deviations, in any unit.

    Raises:
        InputError: no points.
    """
    x, y, weight = np.asarray(x, float), np.asarray(y, float), 1 / np.asarray(sigma, float) ** 2
    if len(x) == 0:
        raise InputError("fit_roofline: no points; accepted: at least one")
    whole = _line(x, y, weight)
    candidates = [FittedRoofline(whole, whole)]
    for k in range(1, len(x)):
        candidates.append(
            FittedRoofline(_line(x[:k], y[:k], weight[:k]), _line(x[k:], y[k:], weight[k:]))
        )
    errors = [float((weight * (fit(x) - y) ** 2).sum()) for fit in candidates]
    return candidates[int(np.argmin(errors))]


def _line(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Weighted least squares with a slope of at least 0: (level, slope)."""
    middle, level = np.average(x, weights=weight), np.average(y, weights=weight)
    spread = (weight * (x - middle) ** 2).sum()
    slope = (weight * (x - middle) * (y - level)).sum() / spread if spread > 0 else 0.0
    slope = max(0.0, float(slope))
    return float(level - slope * middle), slope


LEAST, STEP = 32, 32  # packed tokens: no stop before, and sizes a deployment has
RANK_CAP = 128
FITTED = (16, 512)  # packed tokens between which the roofline is fitted


class Bastion(Policy):
    """Stop before node s + 1 if p (T_draft + T_other + T_v(s)) <= P (T_v(s + 1) - T_v(s)).

    For every request by itself: s counts the root, p is the node's path probability and P the sum
    of those so far, the root's 1 among them. The first 32 packed tokens never stop; the result is
    cut down to a multiple of 32. Times are those of a lone request at the workload's typical
    context; T_other is host work.

    Args:
        nodes: most nodes per request; 8,191 in the paper.
        scores: as in DDTree. Equal scores go to the smaller ranks, not to the earlier push.
    """

    def __init__(self, nodes: int = 255, scores: str = AUTO) -> None:
        self.nodes = node_count("nodes", nodes)
        self.scores = choice("scores", scores, (AUTO, *SCORES))

    def prepare(self, lab: Lab) -> None:
        scores = marginal_scores(self.scores, lab.recording)
        self.order = MarginalOrder(self.nodes, branch=RANK_CAP, scores=scores)
        packed, ms = probed(lab.cost, lab.context, *FITTED)
        # the paper's weights: sigma grows 31-fold from the smallest to the largest size
        sigma = 1 + 30 * (packed - FITTED[0]) / (FITTED[1] - FITTED[0])
        self._roofline = fit_roofline(packed, ms, sigma)
        lone = {"packed": np.array([LEAST]), "context": np.array([lab.context])}
        round_time = lab.cost.step(**lone, drafted=True, tree=True)
        self._fixed_ms = (round_time.draft_s + round_time.host_s) * 1e3
        self._fit = {"scores": scores, "rank_cap": self.order.resolved(lab.recording).branch}

    def allocate(self, step: Step) -> np.ndarray:
        survival = np.exp(step.draft.score)  # (batch, M)
        packed = 1 + np.arange(survival.shape[1] + 1)
        verify_ms = self._roofline(packed)  # (M + 1,)
        before = 1 + np.cumsum(survival, axis=1) - survival  # P: (batch, M)
        gain = survival * (self._fixed_ms + verify_ms[:-1])
        stops = (gain <= before * np.diff(verify_ms)) & (packed[:-1] >= LEAST)
        width = np.where(stops.any(axis=1), stops.argmax(axis=1), survival.shape[1])
        width = np.minimum(width, step.draft.size)
        cut = (width + 1) // STEP * STEP - 1
        return np.where(width + 1 < LEAST, width, cut)

    def describe(self) -> dict:
        return self._fit | {
            "memory_ms": self._roofline.memory,
            "compute_ms": self._roofline.compute,
        }
