"""CAST: its width rule on a deployment, its shared budget, its settings."""

from __future__ import annotations

import pytest

from simulator.orders.specs import BestFirstOrder
from simulator.policies.cast import Cast
from simulator.policies.shared.stop_rules import published_mass_curve
from simulator.policy import Lab
from tests.policy_lab import hand_step, make_lab, make_recording, make_step, prepared


@pytest.fixture(scope="module", params=["pool", "hidden"])
def lab(request) -> Lab:
    return make_lab(make_recording(request.param))


@pytest.mark.parametrize(
    ("profile", "charge_draft", "stop", "width"),
    [
        ("blackwell_qwen3_8b", False, 44, 47),
        ("blackwell_qwen3_8b", True, 47, 47),
        ("blackwell_qwen3_4b", False, 113, 127),
        ("blackwell_qwen3_4b", True, 126, 127),
        ("h100_nvl_qwen3_8b", False, 128, 127),
    ],
)
def test_cast_on_the_published_curve(profile, charge_draft, stop, width):
    lab = make_lab(make_recording("pool"), profile)
    policy = prepared(Cast(mass_curve="published", charge_draft=charge_draft), lab)
    fit = policy.describe()
    assert (fit["stop"], fit["width"], fit["mass_curve"]) == (stop, width, "published")
    step = make_step(lab, policy.order, lab.recording.anchors_of(split="report")[:1])
    assert policy.allocate(step).tolist() == [width]


@pytest.mark.parametrize("charge_draft", [False, True])
def test_measured_width_sees_the_jump_that_the_line_misses(charge_draft):
    """Blackwell 8B, published: 24.41 ms at 96 packed tokens, 30.25 at 128; the line deploys 47."""
    lab = make_lab(make_recording("pool"), "blackwell_qwen3_8b")
    policy = Cast(width="measured", mass_curve="published", charge_draft=charge_draft)
    fit = prepared(policy, lab).describe()
    assert fit["width"] == 95
    packed, ms = lab.cost.width_probe()
    rho = published_mass_curve()
    fixed = lab.cost.draft_s(1, 1024) * 1e3 if charge_draft else 0.0
    rates = {
        int(n): (1 + rho[: n - 1].sum()) / (fixed + x)
        for n, x in zip(packed, ms, strict=True)
        if 1 < n <= 128
    }
    assert fit["tokens_per_ms"] == pytest.approx(rates[96]) == max(rates.values())
    # the best plateau is 5 % faster than the line's width, the size behind the jump 11 % slower
    assert rates[96] > 1.05 * rates[48]
    assert rates[128] < 0.9 * rates[48]
    step = make_step(lab, policy.order, lab.recording.anchors_of(split="report")[:1])
    assert policy.allocate(step).tolist() == [95]


def test_measured_width_stays_before_the_staircase_of_b300(lab):
    """Only sizes that were measured are deployed, whatever the masses."""
    fit = prepared(Cast(width="measured"), lab).describe()
    packed, _ = lab.cost.width_probe()
    assert fit["width"] + 1 in packed
    assert fit["mass_curve"] == "tuning"


@pytest.mark.parametrize(("kind", "scores"), [("pool", "marginal"), ("hidden", "marginal_biased")])
def test_cast_draws_marginal_trees(kind, scores):
    policy = prepared(Cast(width=20), make_lab(make_recording(kind)))
    assert policy.order == BestFirstOrder(scores=scores, nodes=48, branch=8, ties="depth")
    assert policy.describe() == {"width": 20, "scores": scores}


def test_cast_explicit_width_needs_no_probe_and_its_own_nodes():
    policy = prepared(Cast(width=100), make_lab(make_recording("pool")))
    assert policy.order.nodes == 100


def test_cast_shared_budget_ties_go_to_the_first_request():
    policy = Cast(width=4, nodes_per_request=1, max_nodes_per_request=3)
    # 3 nodes in all: .9 of the last request, then the first request's .5 and its .25
    step = hand_step([[0.5, 0.25, 0.1, 0.1], [0.25, 0.25, 0.1, 0.1], [0.9, 0.25, 0.1, 0.1]])
    assert policy.allocate(step).tolist() == [2, 0, 1]


def test_cast_shared_budget_stops_at_the_cap_of_one_request():
    policy = Cast(width=4, nodes_per_request=2, max_nodes_per_request=3)
    step = hand_step([[0.9, 0.8, 0.7, 0.6], [0.2, 0.1, 0.1, 0.1]])
    assert policy.allocate(step).tolist() == [3, 1]
