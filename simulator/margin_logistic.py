"""Acceptance of chain tokens from logit margins, for drafters without a confidence head.

As in vLLM's adaptive verification: per depth, a logistic regression on the difference between the
two best logits.
"""

from __future__ import annotations

import numpy as np

from simulator.calibration import Platt, fit_platt
from traces.errors import InputError


def fit_margins(
    probability: np.ndarray, accepted: np.ndarray
) -> tuple[tuple[Platt, ...], tuple[int, ...]]:
    """Maps (a, b) per depth, and the depths (from 1) that had to take the one of all depths.

    The population of a depth are the chains whose tokens before it were all accepted: only there
    does the drafter's guess meet the target's. Where it allows no finite fit, or one that falls
    with the margin, the fit over the populations of all depths stands in.

    Args:
        probability: (n, length) sigmoid of each margin. accepted: (n, length) bool, whether the
            first k tokens all were accepted.

    Raises:
        InputError: all depths together allow no fit either.
    """
    reached = np.column_stack([np.ones(len(accepted), bool), accepted[:, :-1]])
    fits = [_fit(p[r], y[r]) for p, y, r in zip(probability.T, accepted.T, reached.T, strict=True)]
    missing = [depth for depth, fit in enumerate(fits) if fit is None]
    if missing:
        pooled = fit_platt(probability[reached], accepted[reached])
        for depth in missing:
            fits[depth] = pooled
    return tuple(fits), tuple(depth + 1 for depth in missing)


def _fit(probability: np.ndarray, label: np.ndarray) -> Platt | None:
    try:
        fit = fit_platt(probability, label)
    except InputError:
        return None
    return fit if fit.a > 0 else None
