"""SmartSpec / TurboSpec (arXiv 2406.14066): the chain length of most expected goodput.

One length k per batch. A request whose tokens are accepted with probability alpha commits
(1 - alpha^(k+1)) / (1 - alpha) tokens; goodput is their sum over the time of the step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from simulator.calibration.chain import chain_edges
from simulator.calibration.lab import fitting_anchors
from simulator.cost import StepCost
from simulator.orders.specs import ChainOrder
from simulator.policies.checks import choice, probability, whole
from simulator.policy import Lab, Load, Outcome, Policy, Step


@dataclass(frozen=True, slots=True)
class Line:
    """Least-squares line through one table; 0 for what the table does not vary."""

    fixed_s: float
    per_context_token_s: float
    per_batched_token_s: float

    def at(self, context_tokens: float, batched_tokens: float | np.ndarray) -> float | np.ndarray:
        """Seconds at the context of all requests together, and tokens in the forward pass."""
        rest = self.fixed_s + self.per_context_token_s * context_tokens
        return rest + self.per_batched_token_s * batched_tokens


def verify_line(cost: StepCost) -> Line:
    """Of the target's table. Rows measured by total tokens alone say nothing on context."""
    return _fit(
        ((row.batch or 0) * row.kv_prefix_tokens, row.packed_tokens_total, row.verify_ms)
        for row in cost.profile.verify
    )


def draft_line(cost: StepCost) -> Line:
    """Of the drafter's table, all steps of a round together; batched tokens are requests."""
    return _fit(
        (row.batch * row.kv_prefix_tokens, row.batch, row.draft_ms * cost.draft_steps)
        for row in cost.profile.draft
    )


def _fit(rows: Iterable[tuple[float, float, float]]) -> Line:
    context, tokens, ms = np.array(list(rows), float).T  # (n,)
    varied = [np.ptp(context) > 0, np.ptp(tokens) > 0]
    if np.linalg.matrix_rank(np.stack([np.ones_like(ms), context, tokens])) < 1 + sum(varied):
        varied[0] = False  # one prefix: context is that many times the requests
    design = np.stack([np.ones_like(ms), context * varied[0], tokens * varied[1]], axis=1)
    fixed, per_context, per_token = np.linalg.lstsq(design, ms * 1e-3, rcond=None)[0]
    return Line(float(fixed), float(per_context), float(per_token))


COSTS = ("affine", "measured")


class SmartSpec(Policy):
    """Verify k tokens of every request's top-1 chain, k anew every step; 0 is plain decoding.

    alpha of a request: moving average of accepted over that of tested draft tokens (a token behind
    a rejected one is not tested). The paper has a moving average and leaves its window open: a new
    request starts at the calibration split's rates.

    Args:
        cost: affine as published (fitted by least squares to the profile), or measured.
        weight: of the newest step in the moving average.
        max_length: longest chain; null: the whole block.
    """

    order = ChainOrder()

    def __init__(
        self, cost: str = "affine", weight: float = 0.2, max_length: int | None = None
    ) -> None:
        self.cost = choice("cost", cost, COSTS)
        self.weight = probability("weight", weight)
        self.max_length = None if max_length is None else whole("max_length", max_length)

    def prepare(self, lab: Lab) -> None:
        depths = lab.recording.depths
        self._depths, self._price = depths, lab.cost
        self._lengths = np.arange(min(self.max_length or depths, depths) + 1)
        self._target, self._drafter = verify_line(lab.cost), draft_line(lab.cost)
        _, reached = chain_edges(lab.table(self.order), fitting_anchors(lab, "calibration"))
        accepted = reached.sum(axis=1)
        self._usual = (float(accepted.mean()), float((accepted + (accepted < depths)).mean()))
        self._rates: dict[int, tuple[float, float]] = {}  # accepted, tested by request
        self._chosen = 0

    def plan(self, load: Load) -> ChainOrder | None:
        """The smallest length of the highest goodput."""
        tokens = sum(alpha**self._lengths for alpha in self._alphas(load)).cumsum()
        self._chosen = int(np.argmax(tokens / self._step_s(load)))
        return self.order if self._chosen else None

    def _alphas(self, load: Load) -> np.ndarray:
        ids = [None] * load.batch if load.request is None else load.request.tolist()
        rates = np.array([self._rates.get(request, self._usual) for request in ids])
        return rates[:, 0] / np.maximum(rates[:, 1], 1e-9)  # (batch,)

    def _step_s(self, load: Load) -> np.ndarray:
        """Seconds of a step by length: (max_length + 1,)."""
        if self.cost == "measured":
            step_s = []
            for length in self._lengths.tolist():
                drafted, packed = length > 0, np.full(load.batch, length + 1)
                terms = {"drafted": drafted, "ordered": load.batch * self._depths * drafted}
                step_s.append(self._price.step(packed, load.context, tree=False, **terms).total_s)
            return np.array(step_s)
        context = float(load.context.sum())
        verify_s = self._target.at(context, load.batch * (self._lengths + 1))
        draft_s = self._drafter.at(context, load.batch)
        return np.maximum(verify_s + np.where(self._lengths > 0, draft_s, 0.0), 1e-9)

    def allocate(self, step: Step) -> np.ndarray:
        return np.minimum(step.draft.size, self._chosen)  # (batch,)

    def observe(self, outcome: Outcome) -> None:
        tested = np.minimum(outcome.accepted + 1, outcome.width)
        for request, accepted, tries in zip(
            outcome.request.tolist(), outcome.accepted.tolist(), tested.tolist(), strict=True
        ):
            if tries:
                old = self._rates.get(request, self._usual)
                new = (accepted, tries)
                self._rates[request] = tuple(
                    (1 - self.weight) * x + self.weight * y for x, y in zip(old, new, strict=True)
                )

    def describe(self) -> dict:
        start = self._usual[0] / max(self._usual[1], 1e-9)
        fit = {"cost": self.cost, "alpha_at_start": start}
        if self.cost == "affine":
            fit |= {"verify": asdict(self._target), "draft": asdict(self._drafter)}
        return fit
