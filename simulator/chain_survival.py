"""A chain whose scores are calibrated survivals: which evidence, which draws, what was fitted.

With a confidence head: sequential temperature scaling of its logits. Without: per-depth logistic
regressions on logit margins (argmax chains), or a Platt map of q (sampled chains, whose keys must
not look at the token they admit). Everything is fitted on the calibration split.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.calibration import fit_platt, logit
from simulator.margin_logistic import fit_margins
from simulator.orders.scored_chain import ScoredChain, has_confidence
from simulator.orders.specs import Order
from simulator.params import fitting_anchors, samples
from simulator.policy import Lab
from simulator.temperature_scaling import Scaling, chain_edges, sequential_scaling

DRAWS = ("auto", "fixed", "sampled")  # auto: sampled above temperature 0


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
    sampled = samples(lab, draws)
    anchors = fitting_anchors(lab, "calibration")
    order, fit = (_sampled if sampled else _argmax)(lab, anchors, scaled)
    return order, {"draws": "sampled" if sampled else "fixed"} | fit


def mean_survival(lab: Lab, order: Order) -> np.ndarray:
    """Mean estimated survival by depth over the calibration split: (length,), falling."""
    score = lab.table(order).score[fitting_anchors(lab, "calibration")]
    return np.exp(score).mean(axis=0)


def _argmax(lab: Lab, anchors: np.ndarray, scaled: bool) -> tuple[Order, dict[str, Any]]:
    if has_confidence(lab.recording):
        raw = ScoredChain("confidence")
        if not scaled:
            return raw, {"evidence": "confidence"}
        scaling = _scaling(lab, raw, anchors)
        maps = tuple((1 / t, 0.0) for t in scaling.temperatures)
        return ScoredChain("confidence", maps), _described(scaling)
    maps, pooled = fit_margins(*chain_edges(lab.table(ScoredChain("margin")), anchors))
    fit = {"evidence": "margin", "margin_maps": [list(pair) for pair in maps]}
    return ScoredChain("margin", maps), fit | {"depths_with_pooled_map": list(pooled)}


def _sampled(lab: Lab, anchors: np.ndarray, scaled: bool) -> tuple[Order, dict[str, Any]]:
    from simulator.orders.sampled import SampledOrder
    from simulator.orders.sampled_fit import sampled_edges

    recording = lab.recording
    shape = {"nodes": recording.depths, "branch": 1, "temperature": recording.temperature}
    if "confidence_hidden" in recording:  # drawn parents: the argmax chain's values do not do
        raw = SampledOrder(confidence=(1.0,) * recording.depths, **shape)
        if not scaled:
            return raw, {"evidence": "confidence"}
        scaling = _scaling(lab, raw, anchors)
        return SampledOrder(confidence=scaling.temperatures, **shape), _described(scaling)
    q, label, _ = sampled_edges(recording, lab.table(SampledOrder(**shape)), anchors)
    platt = fit_platt(q, label)
    fit = {"evidence": "q", "platt_a": platt.a, "platt_b": platt.b}
    return SampledOrder(platt=tuple(platt), **shape), fit


def _scaling(lab: Lab, raw: Order, anchors: np.ndarray) -> Scaling:
    confidence, accepted = chain_edges(lab.table(raw), anchors)
    return sequential_scaling(logit(confidence), accepted)


def _described(scaling: Scaling) -> dict[str, Any]:
    return {
        "evidence": "confidence",
        "temperatures": list(scaling.temperatures),
        "ece_before": list(scaling.ece_before),
        "ece_after": list(scaling.ece_after),
    }
