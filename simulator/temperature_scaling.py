"""Sequential temperature scaling: calibrated survival of a chain (DSpark, arXiv 2607.05147).

Depth by depth, one temperature on the confidence's logit is chosen that minimises the expected
calibration error of the product of all confidences so far; those of earlier depths stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.calibration import ece
from simulator.logistic import sigmoid
from simulator.orders.table import OrderTable
from traces.errors import InputError

# The paper says "grid search" and no more; vLLM's online variant has these bounds and steps.
GRID = 2.0 ** np.linspace(-3, 3, 49)


@dataclass(frozen=True, slots=True)
class Scaling:
    """Temperatures by depth, and the calibration error (`calibration.ece`) of the survivals."""

    temperatures: tuple[float, ...]
    ece_before: tuple[float, ...]
    ece_after: tuple[float, ...]


def chain_edges(table: OrderTable, anchors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(probability, accepted) of chains of `length` nodes: both (n, length).

    probability: of every token given that those before were accepted, from the table's scores.
    accepted: whether the first k tokens all were, by the table's hit ranks, so that the labels of
    sampled chains are their own.
    """
    score = table.score[anchors]
    length = score.shape[1]
    if (table.size[anchors] != length).any():
        raise InputError(f"chain_edges: chains of fewer than {length} tokens, accepted: whole ones")
    accepted = table.hit_rank[anchors, :length] == np.arange(1, length + 1)
    return np.exp(np.diff(score, axis=1, prepend=0.0)), accepted


def sequential_scaling(logit: np.ndarray, accepted: np.ndarray) -> Scaling:
    """Temperatures for confidences of the given logits.

    Args:
        logit: (n, length) of each token's confidence. accepted: (n, length) bool, whether the
            first k tokens all were accepted; every chain counts at every depth.
    """
    if logit.shape != accepted.shape or logit.ndim != 2 or not logit.size:
        raise InputError(
            f"sequential_scaling: logits {logit.shape} and labels {accepted.shape}, accepted: two"
            " arrays (chains, depths) of one shape"
        )
    raw, scaled = np.ones(len(logit)), np.ones(len(logit))
    chosen, before, after = [], [], []
    for x, label in zip(logit.T, accepted.T, strict=True):
        raw = raw * sigmoid(x)
        survivals = scaled * sigmoid(x / GRID[:, None])  # (49, n)
        errors = np.array([ece(survival, label) for survival in survivals])
        best = np.lexsort((np.abs(np.log(GRID)), errors))[0]  # of equals, the one nearest to 1
        scaled = survivals[best]
        chosen.append(float(GRID[best]))
        before.append(ece(raw, label))
        after.append(float(errors[best]))
    return Scaling(tuple(chosen), tuple(before), tuple(after))
