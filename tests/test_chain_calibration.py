"""Calibrated chains: sequential temperature scaling and per-depth margin fits, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.calibration.chain import (
    GRID,
    calibrated_chain,
    chain_edges,
    fit_margins,
    sequential_scaling,
)
from simulator.calibration.maps import ece
from simulator.orders import ChainOrder
from simulator.orders.families.sampled import SampledOrder
from simulator.orders.families.scored_chain import ScoredChain
from simulator.policy import Lab
from tests.confidence import with_confidence
from tests.policy_lab import make_lab, make_recording
from tests.synthetic import make_hidden, make_pool
from traces.common.errors import InputError


def test_temperatures_by_hand():
    """First tokens: 6 of 8 accepted, said 0.9 = sigmoid(2 log 3); at T = 2 that is 3/4 exactly.

    Both tokens: 4 of 8, that is 2/3 of 3/4, and sigmoid(log(2) / 2 / T) is 2/3 at T = 1/2.
    """
    accepted = np.zeros((8, 2), bool)
    accepted[:6, 0] = accepted[:4, 1] = True
    logit = np.tile([2 * math.log(3), math.log(2) / 2], (8, 1))
    scaling = sequential_scaling(logit, accepted)
    assert scaling.temperatures == (2.0, 0.5)
    raw = 1 / (1 + math.exp(-math.log(2) / 2))
    assert scaling.ece_before == pytest.approx((0.15, abs(0.9 * raw - 0.5)))
    assert scaling.ece_after == pytest.approx((0.0, 0.0), abs=1e-15)
    # Logit 0 is 1/2 at every temperature: of equal errors the one nearest to 1.
    half = sequential_scaling(np.zeros((4, 1)), np.array([[True], [True], [False], [False]]))
    assert half.temperatures == (1.0,)


def test_every_temperature_is_the_best_given_those_before():
    """Against loops over the grid, with the calibration error written out."""
    rng = np.random.default_rng(4)
    logit = rng.normal(1.0, 2.0, size=(300, 3))
    hits = rng.random((300, 3)) < 1 / (1 + np.exp(-logit / np.array([3.0, 0.6, 1.5])))
    accepted = np.logical_and.accumulate(hits, axis=1)
    scaling = sequential_scaling(logit, accepted)

    def error(temperatures):
        total, bins = 0.0, [[] for _ in range(15)]
        for row, label in zip(logit, accepted[:, len(temperatures) - 1], strict=True):
            survival = math.prod(
                1 / (1 + math.exp(-x / t)) for x, t in zip(row, temperatures, strict=False)
            )
            bins[min(int(survival * 15), 14)].append(label - survival)
        for gaps in bins:
            total += abs(sum(gaps))
        return total / len(logit)

    for depth in range(3):
        frozen = scaling.temperatures[:depth]
        errors = [error((*frozen, t)) for t in GRID]
        assert scaling.ece_after[depth] == pytest.approx(min(errors), abs=1e-12)
        assert error(scaling.temperatures[: depth + 1]) == pytest.approx(min(errors), abs=1e-12)
        assert scaling.ece_before[depth] == pytest.approx(error((1.0,) * (depth + 1)), abs=1e-12)
    assert 2 < scaling.temperatures[0] < 4.5  # said too strongly by a factor of 3
    assert all(a < b for a, b in zip(scaling.ece_after, scaling.ece_before, strict=True))


def test_chain_edges_are_conditional_probabilities_and_prefixes():
    recording = make_recording("pool")
    lab = make_lab(recording)
    anchors = lab.anchors("calibration")
    edge, accepted = chain_edges(lab.table(ChainOrder()), anchors)
    top = np.exp(recording["pool_logprob"][anchors, :, 0].astype(np.float64))
    assert edge == pytest.approx(top, rel=1e-9)
    same = recording["pool_token"][anchors, :, 0] == recording.realised(anchors)
    assert np.array_equal(accepted, np.logical_and.accumulate(same, axis=1))


def margins(rng, count=400):
    """Margins of three depths, and labels from sigmoid(0.8 margin - 1) while all before hold."""
    margin = rng.exponential(2.0, size=(count, 3))
    hits = rng.random(margin.shape) < 1 / (1 + np.exp(1 - 0.8 * margin))
    return margin, np.logical_and.accumulate(hits, axis=1)


def test_margin_fits_see_only_chains_accepted_so_far():
    """At the optimum of a depth's log-loss the residuals of its population vanish."""
    margin, accepted = margins(np.random.default_rng(6))
    maps, pooled = fit_margins(1 / (1 + np.exp(-margin)), accepted)
    assert pooled == ()
    reached = np.ones(len(margin), bool)
    for depth, (a, b) in enumerate(maps):
        x, y = margin[reached, depth], accepted[reached, depth]
        residual = 1 / (1 + np.exp(-(a * x + b))) - y
        assert residual.sum() == pytest.approx(0, abs=1e-6)
        assert (residual * x).sum() == pytest.approx(0, abs=1e-6)
        reached = accepted[:, depth]


def test_depths_without_a_fit_take_the_one_of_all_depths():
    rng = np.random.default_rng(7)
    margin, accepted = margins(rng)
    accepted[:, 2] = False  # never accepted at depth 3
    backwards = accepted[:, 0] & (margin[:, 1] < 1.5)
    accepted[:, 1] = backwards ^ (accepted[:, 0] & (rng.random(len(margin)) < 0.1))
    maps, pooled = fit_margins(1 / (1 + np.exp(-margin)), accepted)
    assert pooled == (2, 3)
    assert maps[1] == maps[2] != maps[0]
    reached = np.column_stack([np.ones(len(margin), bool), accepted[:, :2]])
    a, b = maps[1]
    residual = 1 / (1 + np.exp(-(a * margin[reached] + b))) - accepted[reached]
    assert residual.sum() == pytest.approx(0, abs=1e-6)
    with pytest.raises(InputError, match="0 accepted of"):
        fit_margins(1 / (1 + np.exp(-margin)), np.zeros_like(accepted))


def test_a_confidence_head_is_scaled_on_the_calibration_split():
    recording = with_confidence(make_recording("hidden"))
    lab = make_lab(recording)
    order, fit = calibrated_chain(lab)
    assert fit["draws"] == "fixed"
    assert fit["evidence"] == "confidence"
    assert order.maps == tuple((1 / t, 0.0) for t in fit["temperatures"])
    anchors = lab.anchors("calibration")
    table = lab.table(order)
    for depth, (before, after) in enumerate(zip(fit["ece_before"], fit["ece_after"], strict=True)):
        label = table.hit_rank[anchors, depth] == depth + 1
        assert ece(np.exp(table.score[anchors, depth]), label) == pytest.approx(after, abs=1e-9)
        raw = lab.table(ScoredChain("confidence")).score[anchors, depth]
        assert ece(np.exp(raw), label) == pytest.approx(before, abs=1e-9)
    unscaled, said = calibrated_chain(lab, scaled=False)
    assert unscaled == ScoredChain("confidence")
    assert said == {"draws": "fixed", "evidence": "confidence"}


@pytest.mark.parametrize("kind", ["pool", "hidden"])
def test_margins_serve_drafters_without_a_head(kind):
    lab = make_lab(make_recording(kind))
    order, fit = calibrated_chain(lab)
    assert fit["evidence"] == "margin"
    assert order.evidence == "margin"
    assert [list(pair) for pair in order.maps] == fit["margin_maps"]
    assert len(order.maps) == lab.recording.depths
    pooled = [order.maps[depth - 1] for depth in fit["depths_with_pooled_map"]]
    assert len(set(pooled)) <= 1


def test_draws_follow_the_temperature():
    lab = make_lab(make_recording("pool"))
    with pytest.raises(InputError, match="synthetic pool has temperature 0; accepted there: any"):
        calibrated_chain(lab, "sampled")


# ---------------- Above temperature 0: sampled chains with keys read before the draw.

CHAIN, TEMPERATURE = 5, 0.8


@pytest.fixture(scope="module", params=["pool", "hidden", "head"])
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def lab(kind) -> Lab:
    make = make_pool if kind == "pool" else make_hidden
    shape = {"depths": CHAIN, "lengths": [30] * 9, "sequences": 9, "temperature": TEMPERATURE}
    recording = make(np.random.default_rng(5), **shape, meta={"seed": 5})
    return make_lab(with_confidence(recording) if kind == "head" else recording)


def test_auto_draws_above_temperature_zero_and_argmax_chains_may_be_asked_for(lab, kind):
    order, fit = calibrated_chain(lab)
    assert isinstance(order, SampledOrder)
    assert (order.branch, order.nodes, order.temperature) == (1, CHAIN, TEMPERATURE)
    assert fit["draws"] == "sampled"
    if kind == "head":
        assert (order.confidence, order.platt) == (tuple(fit["temperatures"]), None)
    else:
        assert (order.confidence, order.platt) == (None, (fit["platt_a"], fit["platt_b"]))
    order, fit = calibrated_chain(lab, "fixed")
    assert isinstance(order, ScoredChain)
    assert order.evidence == fit["evidence"] == ("confidence" if kind == "head" else "margin")
    assert fit["draws"] == "fixed"


def test_scaling_labels_are_those_of_the_chain_that_is_drawn(lab, kind):
    if kind != "head":
        lab = make_lab(with_confidence(make_hidden(np.random.default_rng(5), temperature=1.0)))
    anchors = lab.anchors("calibration")
    after = {}
    for draws in ("sampled", "fixed"):
        order, fit = calibrated_chain(lab, draws)
        table = lab.table(order)
        for depth, error in enumerate(fit["ece_after"]):
            survival = np.exp(table.score[anchors, depth])
            hit = table.hit_rank[anchors, depth] == depth + 1
            assert ece(survival, hit) == pytest.approx(error, abs=1e-9)
        after[draws] = fit["ece_after"]
    assert after["sampled"] != after["fixed"]
