"""Chain policies above temperature 0: sampled chains with keys read before the draw."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.calibration.chain import calibrated_chain
from simulator.calibration.maps import ece
from simulator.orders.families.sampled import SampledOrder
from simulator.orders.families.scored_chain import ScoredChain
from simulator.policy import Lab
from tests.confidence import with_confidence
from tests.policy_lab import make_lab
from tests.synthetic import make_hidden, make_pool

DEPTHS, TEMPERATURE = 5, 0.8


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path))


@pytest.fixture(scope="module", params=["pool", "hidden", "head"])
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def lab(kind) -> Lab:
    make = make_pool if kind == "pool" else make_hidden
    shape = {"depths": DEPTHS, "lengths": [30] * 9, "sequences": 9, "temperature": TEMPERATURE}
    recording = make(np.random.default_rng(5), **shape, meta={"seed": 5})
    return make_lab(with_confidence(recording) if kind == "head" else recording)


def test_auto_draws_above_temperature_zero(lab, kind):
    order, fit = calibrated_chain(lab)
    assert isinstance(order, SampledOrder)
    assert (order.branch, order.nodes, order.temperature) == (1, DEPTHS, TEMPERATURE)
    assert fit["draws"] == "sampled"
    if kind == "head":
        assert order.confidence == tuple(fit["temperatures"])
        assert order.platt is None
    else:
        assert order.platt == (fit["platt_a"], fit["platt_b"])
        assert order.confidence is None


def test_argmax_chains_may_be_asked_for(lab, kind):
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
