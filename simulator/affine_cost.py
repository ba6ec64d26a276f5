"""A latency profile as straight lines: seconds = fixed + per context token + per batched token.

SmartSpec (arXiv 2406.14066) prices steps so; steps and plateaus of the tables are lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simulator.cost import StepCost

_FITS = ("fixed_s", "per_context_token_s", "per_batched_token_s")


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

    def described(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in _FITS}


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
