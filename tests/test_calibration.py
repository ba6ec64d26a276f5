"""Platt scaling: published values, known parameters, brute force, the edges it is fitted on."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.calibration.fit import platt_edges
from simulator.calibration.maps import Platt, ece, fit_platt
from simulator.orders import BestFirstOrder, build_order
from tests.synthetic import make_geometric, make_hidden, make_pool
from traces import InputError


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_published_map():
    """TreeSpark's constants for Qwen3-4B and their values to three decimals."""
    p = Platt(0.6684, -0.4587)(np.array([0.1, 0.2, 0.5, 0.9, 0.99]))
    assert np.round(p, 3).tolist() == [0.127, 0.200, 0.387, 0.733, 0.932]


def test_identity_and_clamps():
    q = np.array([1e-12, 0.3, 0.999])
    np.testing.assert_allclose(Platt(1.0, 0.0)(q), q, rtol=1e-12)
    ends = Platt(1.0, 0.0)(np.array([0.0, 1.0]))
    assert ends[0] < 1e-200
    assert ends[1] == pytest.approx(1 - 1e-9, abs=1e-12)


def _labels(q: np.ndarray, a: float, b: float, rng) -> np.ndarray:
    z = a * np.log(q / (1 - q)) + b
    return rng.random(len(q)) < 1 / (1 + np.exp(-z))


@pytest.mark.parametrize(("a", "b"), [(0.6684, -0.4587), (1.25, 0.7)])
def test_known_parameters_are_recovered(a, b):
    rng = _rng(5)
    q = rng.beta(0.7, 1.5, size=40_000)
    fitted = fit_platt(q, _labels(q, a, b, rng))
    x = np.log(q / (1 - q))
    p = 1 / (1 + np.exp(-(a * x + b)))
    weight = p * (1 - p)
    information = np.array(
        [[(weight * x * x).sum(), (weight * x).sum()], [(weight * x).sum(), weight.sum()]]
    )
    error = np.sqrt(np.diag(np.linalg.inv(information)))  # standard errors at the truth
    assert abs(fitted.a - a) < 4 * error[0]
    assert abs(fitted.b - b) < 4 * error[1]
    assert error.max() < 0.05  # so that the bound above means something


def _loss(q, label, a, b) -> float:
    total = 0.0
    for one, hit in zip(q, label, strict=True):
        p = 1 / (1 + math.exp(-(a * math.log(one / (1 - one)) + b)))
        total -= math.log(p) if hit else math.log(1 - p)
    return total


def test_fit_is_the_optimum_of_a_grid():
    rng = _rng(6)
    q = rng.random(25)
    label = _labels(q, 1.0, -0.3, rng)
    best, step = (0.0, 0.0), 2.0
    while step > 1e-5:  # grids around the best point, each half as wide
        cells = [(best[0] + i * step, best[1] + j * step) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        found = min(cells, key=lambda ab: _loss(q, label, *ab))
        step = step / 2 if found == best else step
        best = found
    fitted = fit_platt(q, label)
    assert fitted.a == pytest.approx(best[0], abs=1e-3)
    assert fitted.b == pytest.approx(best[1], abs=1e-3)
    assert _loss(q, label, *fitted) <= _loss(q, label, *best) + 1e-12


def test_fit_zeroes_the_gradient_whatever_the_scale():
    rng = _rng(7)
    for low, high in ((0.4, 0.6), (1e-9, 1e-3), (0.9999, 1.0)):
        q = rng.uniform(low, high, size=300)
        label = rng.random(300) < 0.3
        fitted = fit_platt(q, label)
        x = np.log(q) - np.log1p(-q)
        residual = 1 / (1 + np.exp(-(fitted.a * x + fitted.b))) - label
        assert abs(residual.mean()) < 1e-9
        assert abs((residual * (x - x.mean())).mean() / x.std()) < 1e-9


UNFITTABLE = [
    ([0.2, 0.4], [1, 1], "2 accepted of 2"),
    ([0.2, 0.4], [0, 0], "0 accepted of 2"),
    ([0.1, 0.2, 0.7, 0.8], [0, 0, 1, 1], "separates"),
    ([0.1, 0.2, 0.7, 0.8], [1, 1, 0, 0], "separates"),
    ([0.1, 0.2, 0.2, 0.8], [0, 0, 1, 1], "separates"),  # touching: the slope still diverges
    ([0.5, 0.5, 0.5], [0, 1, 0], "separates"),
    ([0.1, 0.2], [0, 1, 0], "as many"),
    ([0.1, 0.2], [0, 2], "labels 0 or 1"),
    ([0.1, float("nan")], [0, 1], "labels 0 or 1"),
    ([], [], "0 accepted of 0"),
]


@pytest.mark.parametrize(("q", "label", "message"), UNFITTABLE)
def test_no_finite_fit_is_said_in_one_line(q, label, message):
    with pytest.raises(InputError, match=message) as caught:
        fit_platt(np.array(q), np.array(label))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [make_pool, make_hidden])
def test_edges_are_the_children_of_accepted_nodes(make):
    recording = make(_rng(8), lengths=[12] * 6)
    table = build_order(BestFirstOrder(nodes=25, branch=4), recording)
    anchors = np.arange(0, recording.num_anchors, 2)
    expected = []
    for anchor in anchors:
        realised = recording.realised(np.array([anchor]))[0]
        path = {-1}  # nodes of the realised path; parents come first
        for m in range(table.size[anchor]):
            parent = int(table.parent[anchor, m])
            if parent in path:
                depth = int(table.depth[anchor, m])
                hit = table.token[anchor, m] == realised[depth - 1]
                above = 0.0 if parent < 0 else table.score[anchor, parent]
                expected.append((math.exp(table.score[anchor, m] - above), bool(hit)))
                if hit:
                    path.add(m)
    q, label = platt_edges(table, recording, anchors)
    assert label.tolist() == [hit for _, hit in expected]
    np.testing.assert_allclose(q, [one for one, _ in expected], rtol=1e-12)
    assert 0 < label.sum() < len(label)


def test_a_calibrated_drafter_needs_no_map():
    """The geometric drafter's top-1 has probability alpha and is right with chance alpha."""
    recording = make_geometric(0.6, _rng(9), sequences=30, length=120, depths=4)
    table = build_order(BestFirstOrder(branch=2), recording)
    q, label = platt_edges(table, recording, np.arange(recording.num_anchors))
    top = q > 0.5
    assert label[top].mean() == pytest.approx(0.6, abs=4 * math.sqrt(0.24 / top.sum()))
    fitted = fit_platt(q, label)
    np.testing.assert_allclose(fitted(np.array([0.6])), label[top].mean(), atol=1e-6)
    np.testing.assert_allclose(fitted(q[~top][:1]), label[~top].mean(), atol=1e-6)


def test_calibrated_orders_and_foreign_recordings_are_refused():
    recording = make_pool(_rng(1), lengths=[5] * 3, sequences=3)
    fitted = build_order(BestFirstOrder(platt=(1.0, 0.0)), recording)
    with pytest.raises(InputError, match="platt None"):
        platt_edges(fitted, recording, np.arange(3))
    other = make_pool(_rng(1), lengths=[6] * 3, sequences=3)
    with pytest.raises(InputError, match="not one of"):
        platt_edges(build_order(BestFirstOrder(), other), recording, np.arange(3))


def test_ece_by_hand():
    p, label = np.array([0.1, 0.1, 0.9, 0.9]), np.array([0, 1, 1, 1])
    # two bins: |.5 - .1| for half of the mass, |1 - .9| for the other
    assert ece(p, label, bins=2) == pytest.approx(0.25)
    # one bin: mean label .75 against mean p .5
    assert ece(p, label, bins=1) == pytest.approx(0.25)
    assert ece(np.array([1.0, 0.0]), np.array([1, 0])) == 0.0
    with pytest.raises(InputError, match="at least one"):
        ece(np.array([]), np.array([]))
