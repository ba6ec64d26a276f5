"""A chain whose scores are calibrated survivals: which evidence, which draws, what was fitted.

With a confidence head: sequential temperature scaling of its logits. Without: per-depth logistic
regressions on logit margins (argmax chains), or a Platt map of q (sampled chains, whose keys must
not look at the token they admit). Everything is fitted on the calibration split.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from simulator.calibration.lab import Lab, fitting_anchors, samples
from simulator.calibration.maps import Platt, ece, fit_platt, sigmoid
from simulator.orders.families.sampled import SampledOrder, sampled_edges
from simulator.orders.families.scored_chain import ScoredChain, has_confidence
from simulator.orders.scores import logit
from simulator.orders.specs import Order
from simulator.orders.table import OrderTable
from traces.common.errors import InputError

# The paper says "grid search" and no more; vLLM's online variant has these bounds and steps.
GRID = 2.0 ** np.linspace(-3, 3, 49)
DRAWS = ("auto", "fixed", "sampled")  # auto: sampled above temperature 0


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
    fits: list[Platt | None] = []
    for p, label, here in zip(probability.T, accepted.T, reached.T, strict=True):
        try:
            fit = fit_platt(p[here], label[here])
        except InputError:
            fit = None
        fits.append(fit if fit and fit.a > 0 else None)
    missing = [depth for depth, fit in enumerate(fits) if fit is None]
    if missing:
        pooled = fit_platt(probability[reached], accepted[reached])
        for depth in missing:
            fits[depth] = pooled
    return tuple(fits), tuple(depth + 1 for depth in missing)


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


def calibrated_chain(
    lab: Lab, draws: str = "auto", scaled: bool = True
) -> tuple[Order, dict[str, Any]]:
    """The order, and what to report of its fit (JSON types).

    Args:
        draws: fixed (the argmax chain at any temperature) or sampled chains; auto: sampled above
            temperature 0, as DSpark does. scaled: False keeps a confidence head's own values.

    Raises:
        InputError: sampled chains at temperature 0, or a split that allows no fit.
    """
    recording, sampled = lab.recording, samples(lab, draws)
    anchors = fitting_anchors(lab, "calibration")
    said: dict[str, Any] = {"draws": "sampled" if sampled else "fixed"}
    shape = {"nodes": recording.depths, "branch": 1, "temperature": recording.temperature}
    raw: Order = ScoredChain("confidence")
    if sampled:  # of drawn parents: the argmax chain's values do not do
        raw = SampledOrder(confidence=(1.0,) * recording.depths, **shape)
    if "confidence_hidden" in recording or (not sampled and has_confidence(recording)):
        said["evidence"] = "confidence"
        if not scaled:
            return raw, said
        confidence, accepted = chain_edges(lab.table(raw), anchors)
        scaling = sequential_scaling(logit(confidence), accepted)
        maps = tuple((1 / t, 0.0) for t in scaling.temperatures)
        fitted = {"confidence": scaling.temperatures} if sampled else {"maps": maps}
        return replace(raw, **fitted), said | asdict(scaling)
    if sampled:
        q, label, _ = sampled_edges(recording, lab.table(SampledOrder(**shape)), anchors)
        platt = fit_platt(q, label)
        said |= {"evidence": "q", "platt_a": platt.a, "platt_b": platt.b}
        return SampledOrder(platt=tuple(platt), **shape), said
    maps, pooled = fit_margins(*chain_edges(lab.table(ScoredChain("margin")), anchors))
    said |= {"evidence": "margin", "margin_maps": [list(pair) for pair in maps]}
    return ScoredChain("margin", maps), said | {"depths_with_pooled_map": list(pooled)}
