"""CaDDTree (arXiv 2606.01813): DDTree's order, stopped at the first node that does not pay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.orders.families.marginal import AUTO, SCORES, MarginalOrder, marginal_scores
from simulator.policies.checks import choice, node_count
from simulator.policies.shared.stop_rules import first_stop_widths, probed
from simulator.policy import Lab, Policy, Step
from traces.common.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class ConvexCurve:
    """level + sum of rises * max(x - knots, 0): flat before the first knot, straight at the end."""

    level: float
    knots: np.ndarray  # (k,) ascending
    rises: np.ndarray  # (k,) of the slope, at least 0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Values at x, any shape."""
        above = np.maximum(np.asarray(x, float)[..., None] - self.knots, 0.0)
        return self.level + above @ self.rises


def fit_convex(x: np.ndarray, y: np.ndarray) -> ConvexCurve:
    """Minimises the sum of squares over curves whose slopes are at least 0 and never fall.

    Such a curve is a level plus hinges of non-negative rise, at the points but the last; the level
    is free, so both sides are centred, and the rises are a non-negative least squares.

    Args:
        x: (n,) ascending, distinct. y: (n,).

    Raises:
        InputError: no points, or not ascending.
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    if len(x) == 0 or x.shape != y.shape or (np.diff(x) <= 0).any():
        raise InputError(f"fit_convex: points at {x.tolist()}; accepted: ascending, at least one")
    from scipy.optimize import lsq_linear  # takes 0.2 s to import

    knots = x[:-1]
    hinges = np.maximum(x[:, None] - knots, 0.0)  # (n, n - 1)
    scale = np.linalg.norm(hinges - hinges.mean(axis=0), axis=0)
    columns = (hinges - hinges.mean(axis=0)) / scale
    found = lsq_linear(columns, y - y.mean(), (0.0, np.inf), method="bvls", tol=1e-14)
    rises = found.x / scale
    kept = rises > 0
    level = y.mean() - hinges.mean(axis=0)[kept] @ rises[kept]
    return ConvexCurve(float(level), knots[kept], rises[kept])


PROFILED = 1024  # packed tokens up to which the paper measures
NEAR = 1e-4  # relative: decisions this close are counted


class CaDDTree(Policy):
    """Per request, add nodes while tokens per second rise: (1 + mass) / (C_d + C_v(n, context)).

    C_v: non-decreasing convex fits to the profile's measured sizes, one per measured context,
    straight between contexts and constant beyond. Tokens per second then have one peak, and no
    jump of the profile is left. A node that does not raise them is not added.

    Args:
        nodes: most nodes per request; the paper's 1,024 where trees so large can pay.
        scores: as in DDTree.
        batch_term: false as published: costs of a lone request, whatever the load. true: those of
            the live batch, every request taking as many nodes (an extension).
        quirks: as released, read C_v, measured on packed tokens, at the number of nodes (one too
            low), and C_v(0) = C_v(1).
    """

    def __init__(
        self,
        nodes: int = 255,
        scores: str = AUTO,
        batch_term: bool = False,
        quirks: bool = False,
    ) -> None:
        self.nodes = node_count("nodes", nodes)
        self.scores = choice("scores", scores, (AUTO, *SCORES))
        self.batch_term = choice("batch_term", batch_term, (False, True))
        self.quirks = choice("quirks", quirks, (False, True))

    def prepare(self, lab: Lab) -> None:
        self.near_threshold = 0
        scores = marginal_scores(self.scores, lab.recording)
        self.order = MarginalOrder(nodes=self.nodes, scores=scores)
        resolved = self.order.resolved(lab.recording)
        self._cost, self._curves = lab.cost, {}
        rows = [row for row in lab.cost.profile.verify if row.batch in (1, None)]
        self._contexts = np.unique([row.kv_prefix_tokens for row in rows])
        self._cost.width_probe()  # refuses a profile that has no lone request
        for context in self._contexts:  # or none that is small enough
            probed(self._cost, context, 1, PROFILED)
        counts = np.arange(resolved.nodes + 1)
        self._packed = np.maximum(counts, 1) if self.quirks else counts + 1
        self._fit = {"scores": scores, "rank_cap": resolved.branch}

    def verify_s(self, batch: int) -> np.ndarray:
        """Fitted C_v of 0..nodes nodes per request: (contexts, nodes + 1) seconds."""
        if batch not in self._curves:
            fits = []
            for context in self._contexts:
                packed, ms = probed(self._cost, context, 1, PROFILED)
                seconds = ms * 1e-3
                if batch > 1:
                    seconds = self._cost.verify_curve_s(batch, batch * packed, context)
                fits.append(fit_convex(packed, seconds)(self._packed))
            self._curves[batch] = np.array(fits)
        return self._curves[batch]

    def allocate(self, step: Step) -> np.ndarray:
        context, batch = step.load.context, step.batch if self.batch_term else 1
        verify_s = self._at(self.verify_s(batch), context)  # (batch, nodes + 1)
        draft_s = np.array([self._cost.draft_s(batch, x) for x in context.tolist()])
        survival, step_s = np.exp(step.draft.score), draft_s[:, None] + verify_s
        width = np.minimum(first_stop_widths(survival, step_s), step.draft.size)
        rate = (1 + np.cumsum(survival, axis=1)) / step_s[:, 1:]
        rate = np.concatenate([1 / step_s[:, :1], rate], axis=1)  # (batch, nodes + 1)
        asked = np.arange(survival.shape[1]) <= width[:, None]
        near = asked & (np.abs(rate[:, 1:] / rate[:, :-1] - 1) < NEAR)
        self.near_threshold += int(np.count_nonzero(near.any(axis=1)))
        return width

    def _at(self, curves: np.ndarray, context: np.ndarray) -> np.ndarray:
        """Rows of `curves` between the measured contexts: (batch, nodes + 1)."""
        place = np.interp(context, self._contexts, np.arange(len(self._contexts)))
        low = place.astype(int)
        high = np.minimum(low + 1, len(curves) - 1)
        return curves[low] + (place - low)[:, None] * (curves[high] - curves[low])

    def describe(self) -> dict:
        return self._fit
