"""Calibration maps: published values, optima, known parameters, nodes of trees, monotone curves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from simulator.calibration.fit import fit_calibration, platt_edges, tree_nodes
from simulator.calibration.maps import (
    LEAST,
    MAX_KNOTS,
    EdgeMap,
    IsotonicMap,
    Platt,
    ece,
    fit_edge_map,
    fit_isotonic,
    fit_platt,
    merged,
)
from simulator.orders import BestFirstOrder, build_order
from simulator.orders.table import ABSENT
from tests.synthetic import make_geometric, make_hidden, make_pool
from traces import InputError
from traces.recordings.part import part_of


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_published_map():
    """TreeSpark's constants for Qwen3-4B and their values to three decimals."""
    p = Platt(0.6684, -0.4587)(np.array([0.1, 0.2, 0.5, 0.9, 0.99]))
    assert np.round(p, 3).tolist() == [0.127, 0.200, 0.387, 0.733, 0.932]
    q = np.array([1e-12, 0.3, 0.999])
    np.testing.assert_allclose(Platt(1.0, 0.0)(q), q, rtol=1e-12)
    ends = Platt(1.0, 0.0)(np.array([0.0, 1.0]))
    assert ends[0] < 1e-200
    assert ends[1] == pytest.approx(1 - 1e-9, abs=1e-12)


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
    q, label, one = np.array(q), np.array(label), np.ones(len(q), int)
    for fit in (fit_platt, lambda q, label: fit_edge_map(q, one, one, label, 1)):
        with pytest.raises(InputError, match=message) as caught:
            fit(q, label)
        assert "\n" not in str(caught.value)


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


def test_ece_by_hand():
    p, label = np.array([0.1, 0.1, 0.9, 0.9]), np.array([0, 1, 1, 1])
    # two bins: |.5 - .1| for half of the mass, |1 - .9| for the other
    assert ece(p, label, bins=2) == pytest.approx(0.25)
    # one bin: mean label .75 against mean p .5
    assert ece(p, label, bins=1) == pytest.approx(0.25)
    assert ece(np.array([1.0, 0.0]), np.array([1, 0])) == 0.0
    with pytest.raises(InputError, match="at least one"):
        ece(np.array([]), np.array([]))


# Nodes of trees


@pytest.mark.parametrize("make", [make_pool, make_hidden])
@pytest.mark.parametrize("platt", [None, (0.7, -0.4)])
def test_nodes_are_those_of_a_walk(make, platt):
    recording = make(_rng(3), lengths=[9] * 6)
    table = build_order(BestFirstOrder(nodes=30, branch=5, ties="tick", platt=platt), recording)
    anchors = np.arange(1, recording.num_anchors, 3)
    nodes = tree_nodes(table, anchors)
    q = nodes.edge if platt is None else Platt(*platt).inverse(nodes.edge)
    product = nodes.product(q)
    for row, anchor in enumerate(anchors):
        realised = recording.realised(np.array([anchor]))[0]
        for m in range(table.size[anchor]):
            path = [m]  # from the node up
            while table.parent[anchor, path[-1]] >= 0:
                path.append(int(table.parent[anchor, path[-1]]))
            tokens = [int(table.token[anchor, node]) for node in path[::-1]]
            before = tokens[-2] if len(path) > 1 else recording.anchor_tokens(anchors[[row]])[0]
            ranked, logq = (
                x[0] for x in recording.conditional(anchor, len(path) - 1, np.array([before]))
            )
            place = ranked.tolist().index(tokens[-1])
            assert nodes.exists[row, m]
            assert nodes.depth[row, m] == len(path)
            assert nodes.rank[row, m] == place + 1
            assert q[row, m] == pytest.approx(math.exp(logq[place]), rel=1e-9)
            assert nodes.accepted[row, m] == (tokens == realised[: len(path)].tolist())
            above = tokens[:-1] == realised[: len(path) - 1].tolist()
            assert nodes.counted[row, m] == above
            assert product[row, m] == pytest.approx(math.prod(q[row, path]), rel=1e-12)
        assert not nodes.exists[row, table.size[anchor] :].any()


def test_unused_slots_are_no_nodes():
    recording = make_pool(_rng(4), lengths=[6] * 6)
    table = build_order(BestFirstOrder(nodes=12, branch=2), recording)
    size = np.where(np.arange(len(table.size)) % 2, 0, table.size)
    there = size[:, None] > 0  # every other row is empty
    depth, hit = np.where(there, table.depth, 0), np.where(there, table.hit_rank, ABSENT)
    table = replace(table, size=size, depth=depth, hit_rank=hit)
    nodes = tree_nodes(table, np.arange(recording.num_anchors))
    assert set(table.size.tolist()) == {0, 12}
    assert nodes.exists.sum(axis=1).tolist() == table.size.tolist()
    assert not nodes.counted[~nodes.exists].any()
    assert not nodes.accepted[~nodes.exists].any()


# The edge map


def _edges(rng, n: int, depths: int, slope: float, by_rank: float):
    """Edges whose labels follow a map with terms for depth and rank."""
    q, depth, rank = rng.beta(0.6, 1.2, n), rng.integers(1, depths + 1, n), rng.integers(1, 6, n)
    z = slope * np.log(q / (1 - q)) - 0.2 + 0.3 * np.cos(depth) + by_rank * np.log(rank)
    return q, depth, rank, rng.random(n) < 1 / (1 + np.exp(-z))


def _objective(point, q, depth, rank, label) -> float:
    """Sum log-loss + 5 (sum c^2 + e^2), written out."""
    a, b, e, *c = point
    z = a * np.log(q / (1 - q)) + b + np.array(c)[depth - 1] + e * np.log(rank)
    p = 1 / (1 + np.exp(-z))
    losses = -np.log(np.where(label, p, 1 - p))
    return float(losses.sum()) + 5 * (sum(one * one for one in c) + e * e)


def _gradient(fit: EdgeMap, data) -> np.ndarray:
    """Central differences of the objective at the fit, in the order a, b, e, c."""
    point, h = np.array([fit.a, fit.b, fit.rank, *fit.depth]), 1e-5
    ends = [(point + h * axis, point - h * axis) for axis in np.eye(len(point))]
    return np.array([(_objective(x, *data) - _objective(y, *data)) / (2 * h) for x, y in ends])


@pytest.mark.parametrize(
    ("seed", "depths", "slope", "by_rank"),
    [(2, 1, 1.1, -0.7), (2, 4, 1.1, -0.7), (5, 3, 1.0, 0.8), (6, 3, -0.6, -0.5), (7, 2, -0.6, 0.8)],
)
def test_the_gradient_vanishes_but_where_a_bound_holds(seed, depths, slope, by_rank):
    """A slope stays above 0, a rank term at most 0: siblings keep their order."""
    data = _edges(_rng(seed), 400, depths, slope, by_rank)
    fit = fit_edge_map(*data, depths=depths)
    da, db, de, *dc = _gradient(fit, data)
    bounded = slope < 0 or by_rank > 0
    np.testing.assert_allclose([db, *dc], 0.0, atol=1e-4 if bounded else 1e-5)
    assert (0 < fit.a <= 1e-6 and da > 1) if slope < 0 else (fit.a > 0 and abs(da) < 1e-4)
    assert (fit.rank == 0 and de < 0) if by_rank > 0 else (fit.rank < 0 and abs(de) < 1e-4)


def test_known_parameters_are_recovered_and_unseen_depths_get_none():
    data = _edges(_rng(8), 60_000, 3, 0.7, -0.4)
    fit = fit_edge_map(*data, depths=5)
    level = [-0.2 + 0.3 * math.cos(d) for d in (1, 2, 3)]
    np.testing.assert_allclose(np.array(fit.depth[:3]) + fit.b, level, atol=0.06)
    assert fit.a == pytest.approx(0.7, abs=0.02)
    assert fit.rank == pytest.approx(-0.4, abs=0.05)
    assert fit.depth[3:] == (0.0, 0.0)


def test_edge_map_by_hand_and_its_clip():
    fit = EdgeMap(a=1.0, b=0.0, depth=(0.0, math.log(2)), rank=-1.0)
    # even odds doubled at depth 2, halved at rank 2
    p = fit(np.array([0.5, 0.5, 0.5]), np.array([1, 2, 1]), np.array([1, 1, 2]))
    np.testing.assert_allclose(p, [1 / 2, 2 / 3, 1 / 3], rtol=1e-12)
    ends = fit(np.array([0.0, 1.0]), np.array([1, 1]), np.array([1, 1]))
    assert ends.tolist() == [1e-6, 1 - 1e-6]


# The monotone curve


def test_curve_by_hand():
    sigma = np.array([0.1, 0.2, 0.2, 0.4, 0.6, 0.8])
    label = np.array([0, 1, 0, 0, 1, 1])
    # pools: .1 -> 0; .2 .2 .4 -> 1/3; .6 .8 -> 1. The lowest holds no hit and joins the next.
    curve = fit_isotonic(sigma, label)
    assert curve.sigma == pytest.approx((0, 0.9 / 4, 0.7, 1.0))
    assert curve.survival == pytest.approx((LEAST, 1 / 4, 1.0, 1.0))
    assert curve(np.array([0.45 / 4, 0.225, 0.7, 0.9])) == pytest.approx([1 / 8, 1 / 4, 1.0, 1.0])
    assert curve(np.array([0.0]))[0] == 0.0  # a slot without a node


def _nodes(rng, n: int):
    sigma = np.exp(-rng.exponential(3.0, n))
    return sigma, rng.random(n) < sigma**1.3


def test_sums_of_survivals_are_hits():
    sigma, label = _nodes(_rng(9), 50_000)
    curve = fit_isotonic(sigma, label)
    assert curve(sigma).sum() == pytest.approx(label.sum(), rel=0.01)
    assert sigma.sum() > 1.2 * label.sum()  # what it had to repair
    assert len(curve.sigma) <= MAX_KNOTS
    value = curve(np.concatenate([[1e-300, 1e-12], np.linspace(1e-6, 1, 4001)]))
    assert (np.diff(value) >= 0).all()
    assert LEAST <= value.min() <= value.max() <= 1
    for low, high in ((0, 0.01), (0.01, 0.1), (0.1, 0.5), (0.5, 1)):
        part = (sigma > low) & (sigma <= high)
        noise = 4 * math.sqrt(label[part].sum())
        assert curve(sigma[part]).sum() == pytest.approx(label[part].sum(), abs=noise)


def test_merging_keeps_sums_and_order_and_loses_least():
    rng = _rng(11)
    weight = rng.integers(1, 50, 8).astype(float)
    mean = np.sort(rng.random(8))
    pools = np.stack([weight, weight * mean, weight * np.arange(8)])

    def loss(keep) -> float:
        groups = np.add.reduceat(pools, keep, axis=1)
        value = np.repeat(groups[1] / groups[0], np.diff([*keep, 8]))
        return float((weight * (mean - value) ** 2).sum())

    found = merged(pools, 7)
    np.testing.assert_allclose(found.sum(axis=1), pools.sum(axis=1))
    best = min((np.delete(np.arange(8), at).tolist() for at in range(1, 8)), key=loss)
    np.testing.assert_allclose(found, np.add.reduceat(pools, best, axis=1))
    assert (np.diff(merged(pools, 3)[1] / merged(pools, 3)[0]) > 0).all()
    assert merged(pools, 8).tolist() == pools.tolist()


def test_more_pools_than_knots_are_merged():
    """Perfectly sorted, every value its own pool: 400 places with 1..400 hits in 400 nodes."""
    sigma = np.repeat(np.arange(1, 401) / 400, 400)
    label = np.concatenate([np.arange(400) < hits for hits in range(1, 401)])
    curve = fit_isotonic(sigma, label)
    assert len(curve.sigma) == MAX_KNOTS
    grid = np.linspace(0.01, 0.99, 99)
    np.testing.assert_allclose(curve(grid), grid, atol=0.003)


@pytest.mark.parametrize(
    ("sigma", "survival", "says"),
    [
        ((0.0,), (0.5,), "2 to 200 knots"),
        ((0.0, 1.0), (0.1, 0.2, 0.3), "as many"),
        ((0.1, 1.0), (0.1, 0.2), "rise from 0"),
        ((0.0, 0.5, 0.5), (0.1, 0.2, 0.3), "rise from 0"),
        ((0.0, 1.5), (0.1, 0.2), "at most 1"),
        ((0.0, 1.0), (0.3, 0.2), "falls"),
        ((0.0, 1.0), (0.0, 0.2), "falls, or is not in"),
        ((0.0, 1.0), (0.1, 1.2), "falls, or is not in"),
    ],
)
def test_curves_that_are_none(sigma, survival, says):
    with pytest.raises(InputError, match=says):
        IsotonicMap(sigma=sigma, survival=survival)


@pytest.mark.parametrize("label", [[0, 0], []])
def test_no_hit_no_curve(label):
    with pytest.raises(InputError, match=f"none of {len(label)} nodes"):
        fit_isotonic(np.full(len(label), 0.5), np.array(label))


# All of them on one recording


def test_fit_reads_the_calibration_split_alone():
    recording = make_hidden(_rng(12), lengths=[30] * 9, sequences=9)
    asked = []

    def tables(spec):
        asked.append(spec)
        return build_order(spec, recording).only(recording.anchors_of("calibration"))

    fitted = fit_calibration(part_of(recording, ["calibration"]), tables, nodes=20, branch=4)
    whole = fit_calibration(recording, lambda spec: build_order(spec, recording), 20, 4)
    assert fitted == whole
    raw, calibrated = asked
    assert raw == BestFirstOrder(scores="auto", ties="tick", nodes=20, branch=4)
    assert calibrated == fitted.order

    anchors = recording.anchors_of("calibration")
    q, label = platt_edges(build_order(raw, recording), recording, anchors)
    residual = fitted.platt(q) - label
    assert abs(residual.mean()) < 1e-9  # the optimum's two equations
    assert abs((residual * np.log(q / (1 - q))).mean()) < 1e-8
    nodes = tree_nodes(build_order(calibrated, recording), anchors)
    survival = np.exp(build_order(calibrated, recording).score[anchors])  # as policies see it
    assert fitted.path(survival).sum() == pytest.approx(nodes.accepted.sum(), rel=0.02)
    np.testing.assert_allclose(fitted.paths(nodes)["isotonic"], fitted.path(survival), rtol=1e-9)
