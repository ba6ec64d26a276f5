"""Calibration maps against brute force: nodes of trees, the edge map's optimum, monotone curves."""

from __future__ import annotations

import itertools
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
    fit_edge_map,
    fit_isotonic,
    merged,
)
from simulator.orders import BestFirstOrder, build_order
from simulator.orders.table import ABSENT
from tests.synthetic import make_hidden, make_pool
from traces import InputError
from traces.recordings.part import part_of


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


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


def _point(fit: EdgeMap) -> np.ndarray:
    return np.array([fit.a, fit.b, fit.rank, *fit.depth])


def test_the_edge_map_is_the_optimum_of_a_grid():
    data = _edges(_rng(1), 60, 2, 0.8, -0.9)
    best, step = np.array([1.0, 0.0, -0.1, 0.0, 0.0]), 0.5
    moves = [np.array(move) for move in itertools.product((-1, 0, 1), repeat=5)]
    while step > 2e-4:  # around the best point, each grid half as wide
        near = [best + step * move for move in moves]
        near = [point for point in near if point[0] > 0 and point[2] <= 0]
        found = min(near, key=lambda point: _objective(point, *data))
        step = step / 2 if (found == best).all() else step
        best = found
    fit = fit_edge_map(*data, depths=2)
    np.testing.assert_allclose(_point(fit), best, atol=2e-3)
    assert _objective(_point(fit), *data) <= _objective(best, *data)
    assert fit.rank < -0.05  # inside the constraints


def _gradient(fit: EdgeMap, data) -> np.ndarray:
    """Central differences of the objective at the fit, in the order a, b, e, c."""
    point, h = _point(fit), 1e-5
    ends = [(point + h * axis, point - h * axis) for axis in np.eye(len(point))]
    return np.array([(_objective(x, *data) - _objective(y, *data)) / (2 * h) for x, y in ends])


@pytest.mark.parametrize("depths", [1, 4])
def test_the_gradient_vanishes_at_a_free_optimum(depths):
    data = _edges(_rng(2), 400, depths, 1.1, -0.7)
    fit = fit_edge_map(*data, depths=depths)
    np.testing.assert_allclose(_gradient(fit, data), 0.0, atol=1e-5)
    assert fit.a > 0
    assert fit.rank < 0


def test_a_rank_term_that_would_reorder_siblings_is_zero():
    data = _edges(_rng(5), 400, 3, 1.0, +0.8)
    fit = fit_edge_map(*data, depths=3)
    assert fit.rank == 0
    da, db, de, *dc = _gradient(fit, data)
    np.testing.assert_allclose([da, db, *dc], 0.0, atol=1e-5)
    assert de < -1  # it would pay to raise e, and only that


def test_a_falling_slope_is_held_just_above_zero():
    data = _edges(_rng(6), 400, 3, -0.6, -0.5)
    fit = fit_edge_map(*data, depths=3)
    assert 0 < fit.a <= 1e-6
    da, db, de, *dc = _gradient(fit, data)
    np.testing.assert_allclose([db, de, *dc], 0.0, atol=1e-4)
    assert da > 1


def test_both_bounds_at_once():
    fit = fit_edge_map(*_edges(_rng(7), 400, 2, -0.6, 0.8), depths=2)
    assert (fit.a <= 1e-6, fit.rank) == (True, 0.0)


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


@pytest.mark.parametrize("label", [np.zeros(4), np.ones(4), [0, 0, 1, 1]])
def test_edge_maps_without_a_finite_optimum_are_refused(label):
    q = np.array([0.1, 0.2, 0.7, 0.8])
    with pytest.raises(InputError, match="fit_edge_map") as caught:
        fit_edge_map(q, np.ones(4, int), np.ones(4, int), np.array(label), 1)
    assert "\n" not in str(caught.value)


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
    for low, high in ((0, 0.01), (0.01, 0.1), (0.1, 0.5), (0.5, 1)):
        part = (sigma > low) & (sigma <= high)
        noise = 4 * math.sqrt(label[part].sum())
        assert curve(sigma[part]).sum() == pytest.approx(label[part].sum(), abs=noise)


def test_curve_is_monotone_in_bounds_and_small():
    sigma, label = _nodes(_rng(10), 20_000)
    curve = fit_isotonic(sigma, label)
    assert len(curve.sigma) <= MAX_KNOTS
    grid = np.concatenate([[1e-300, 1e-12], np.linspace(1e-6, 1, 4001)])
    value = curve(grid)
    assert (np.diff(value) >= 0).all()
    assert value.min() >= LEAST
    assert value.max() <= 1


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


def test_a_recording_without_the_split_is_refused():
    recording = make_pool(_rng(13), lengths=[1] * 6)
    with pytest.raises(InputError, match="split calibration has no drafted positions"):
        fit_calibration(recording, lambda spec: build_order(spec, recording))
