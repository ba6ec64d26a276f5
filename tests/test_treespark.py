"""TreeSpark: its loop from raw scores, its thresholds and its ladder."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.policies.treespark import TreeSpark
from simulator.policy import Lab
from tests.policy_lab import (
    hand_step,
    make_lab,
    make_load,
    make_recording,
    make_step,
    prepared,
)
from tests.reference import RawScores, best_first, by_push


@pytest.fixture(scope="module", params=["pool", "hidden"])
def lab(request) -> Lab:
    return make_lab(make_recording(request.param))


def test_treespark_admits_survival_equal_to_theta_and_counts_decisions_near_it():
    policy, below = TreeSpark(ladder=[{"max_batch": None, "theta": 0.15}]), np.nextafter(0.15, 0)
    assert policy.allocate(hand_step([[0.2, 0.15, below], [below, 0.1, 0.1]])).tolist() == [2, 0]
    assert policy.near_threshold == 3
    policy.allocate(hand_step([[0.3, 0.15009, 0.14991], [0.15011, 0.14989, 0.1]]))
    assert policy.near_threshold == 5


def test_treespark_calibrates_on_edges_below_accepted_nodes(lab):
    """At the optimum of the log-loss both sums of residuals over the calibration edges vanish."""
    logits, labels, raw = [], [], RawScores(lab.recording.arrays, lab.recording.meta)
    for anchor in lab.anchors("calibration"):
        realised = lab.recording.realised(np.array([anchor]))[0]
        accepted = {-1}
        for node in best_first(raw, anchor, 63, key=by_push).nodes:
            if node.parent.place in accepted:
                hit = node.token == realised[node.depth - 1]
                accepted |= {node.place} if hit else set()
                q = math.exp(node.score - node.parent.score)
                logits.append(math.log(q / (1 - q)))
                labels.append(hit)
    logits, labels = np.array(logits), np.array(labels)
    fit = prepared(TreeSpark(), lab).describe()
    residual = 1 / (1 + np.exp(-(fit["platt_a"] * logits + fit["platt_b"]))) - labels
    assert residual.sum() == pytest.approx(0, abs=1e-6)
    assert (residual * logits).sum() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("batch", [1, 4, 5, 8, 9, 40])
def test_ending_the_order_at_theta_changes_no_width(lab, batch):
    """Nor the count of decisions near theta, of which some lie within 1e-4 below it."""
    plain, early = prepared(TreeSpark(nodes=60), lab), prepared(TreeSpark(nodes=60), lab)
    order = early.plan(make_load(batch))
    assert order.floor < math.log({1: 0.02, 4: 0.02, 5: 0.05, 8: 0.05}.get(batch, 0.15))
    report = lab.recording.anchors_of(split="report")
    for first in range(0, len(report) - batch + 1, batch):
        anchors = report[first : first + batch]
        whole, cut = make_step(lab, plain.order, anchors), make_step(lab, order, anchors)
        assert plain.allocate(whole).tolist() == early.allocate(cut).tolist()
        assert plain.near_threshold == early.near_threshold
    assert lab.table(order).size.sum() < lab.table(plain.order).size.sum()


def test_treespark_published_ladder_is_read_from_the_live_batch():
    policy = TreeSpark()
    probabilities = [0.9, 0.15, 0.1, 0.05, 0.03, 0.02, 0.01]
    widths = {
        batch: policy.allocate(hand_step([probabilities] * batch)).tolist()[0]
        for batch in (1, 4, 5, 8, 9, 40)
    }
    assert widths == {1: 6, 4: 6, 5: 4, 8: 4, 9: 2, 40: 2}
