"""CAST: its width rule on a deployment, its shared budget, its settings."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.orders.specs import BestFirstOrder
from simulator.policies.cast import Cast
from simulator.policies.shared.stop_rules import (
    deploy_width,
    first_stop_widths,
    fit_line,
    measured_width,
    published_mass_curve,
    stop_width,
)
from simulator.policy import Lab
from tests.policy_lab import hand_step, make_lab, make_recording, make_step, prepared
from traces.common.errors import InputError


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
    assert prepared(Cast(width=100), make_lab(make_recording(kind))).order.nodes == 100


@pytest.mark.parametrize(
    ("nodes", "survival", "widths"),
    [
        # 3 nodes in all: .9 of the last request, then the first request's .5 and its .25
        (1, [[0.5, 0.25, 0.1, 0.1], [0.25, 0.25, 0.1, 0.1], [0.9, 0.25, 0.1, 0.1]], [2, 0, 1]),
        (2, [[0.9, 0.8, 0.7, 0.6], [0.2, 0.1, 0.1, 0.1]], [3, 1]),  # the cap of one request
    ],
)
def test_cast_shares_a_budget(nodes, survival, widths):
    policy = Cast(width=4, nodes_per_request=nodes, max_nodes_per_request=3)
    assert policy.allocate(hand_step(survival)).tolist() == widths


# ---------------- The rules themselves, against hand-worked and published numbers.

# A step of 10 s up to 3 nodes, 12 s up to 10, 14 s beyond.
SURVIVAL = np.array([0.9, 0.6, 0.5, 0.3, 0.25, 0.22, 0.2, 0.19, 0.18, 0.17, 0.1])
STEP_S = np.array([10.0] * 4 + [12.0] * 7 + [14.0])


STOPS = [
    # l(1) = 1 + .25 * 2 = 1.5, threshold .25 * 1.5 / 1.5 = .25 <= .3: node 2 is added.
    # l(2) = 1.75, threshold .25 * 1.8 / 1.75 = .257142... > .2: node 3 is not.
    ([0.5, 0.3, 0.2, 0.1], 0.25, 0.0, 2),
    ([0.5, 0.3, 0.2572], 0.25, 0.0, 3),
    ([0.5, 0.3, 0.2571], 0.25, 0.0, 2),
    # A mass equal to its threshold is admitted: .25 * (.5 + 1) / (1 + .25 * 2) = .25 exactly.
    ([0.5, 0.25], 0.25, 0.0, 2),
    ([0.5, np.nextafter(0.25, 0)], 0.25, 0.0, 1),
    ([0.0, 0.0], 1.0, 0.0, 1),  # the first node is never questioned
    # A draft costs: l(2) = .5 + 1.75 = 2.25, threshold .25 * 1.8 / 2.25 = .2: node 3 is added.
    ([0.5, 0.3, 0.2 + 1e-12, 0.1], 0.25, 0.5, 3),
    ([0.0] * 20, 0.0, 0.0, 20),  # a flat or falling line never stops
    ([0.0] * 20, -0.01, 0.0, 20),
]


@pytest.mark.parametrize(("rho", "slope", "draft_ms", "stop"), STOPS)
def test_nodes_are_added_while_their_mass_is_worth_their_share(rho, slope, draft_ms, stop):
    assert stop_width(np.array(rho), 1.0, slope, draft_ms) == stop


def test_the_line_through_a_probe():
    packed = np.array([16, 24, 32, 48, 64, 96, 128])
    ms = np.array([30.6, 30.2, 30.6, 31.2, 31.5, 32.2, 32.6])
    c0_ms, c1_ms = fit_line(packed, ms)
    assert c0_ms == pytest.approx(30.04, abs=0.005)
    assert c1_ms == pytest.approx(0.0211, abs=0.00005)
    assert stop_width(published_mass_curve(), c0_ms, c1_ms) == 120
    # Sizes outside 16 to 128 do not count: through (16, 2) and (128, 4).
    line = fit_line(np.array([1, 16, 128, 256]), np.array([9.0, 2.0, 4.0, 90.0]))
    assert line == pytest.approx((2 - 16 * 2 / 112, 2 / 112))
    with pytest.raises(InputError, match=r"^mine\.csv: width probe .* at least two sizes from 16"):
        fit_line(np.array([1, 8, 16]), np.array([1.0, 2.0, 3.0]), "mine.csv")


@pytest.mark.parametrize(
    ("stop", "width"),
    [(1, 15), (15, 15), (16, 31), (44, 47), (64, 95), (113, 127), (120, 127), (128, 127)],
)
def test_first_deployed_width_that_reaches_the_stop(stop, width):
    assert deploy_width(stop) == width


def test_ratio_on_a_staircase():
    """3 nodes: 3 / 10; 4: 3.3 / 12 = .275 stops; further on, 10 give 4.51 / 12."""
    step_s = np.stack([STEP_S, np.full(12, 10.0), 1.0 + np.arange(12)])
    # rising: 1 token per second without nodes, at most .95 beyond
    assert first_stop_widths(np.tile(SURVIVAL, (3, 1)), step_s).tolist() == [3, 11, 0]
    # (1 + 1) / 2 = 1 / 1 at both widths: the smaller
    assert first_stop_widths(np.array([[1.0]]), np.array([1.0, 2.0])).tolist() == [0]
    survival = np.stack([SURVIVAL, SURVIVAL[::-1], SURVIVAL**4])
    shared = [first_stop_widths(p[None], STEP_S)[0] for p in survival]
    assert first_stop_widths(survival, STEP_S).tolist() == shared


def test_measured_width_is_the_best_measured_size():
    # (1 + .9) / 10 = .19, (1 + 2.3) / 12 = .275, (1 + 3.62) / 40: the jump does not pay
    rho, packed = SURVIVAL, np.array([1, 2, 5, 12, 64])
    ms = np.array([9.0, 10.0, 12.0, 40.0, 41.0])
    assert measured_width(rho, packed, ms) == (4, pytest.approx(3.3 / 12))
    # with 500 ms of drafting every token counts: 4.61 / 540 against 3.3 / 512
    assert measured_width(rho, packed, ms, 500.0)[0] == 11
    with pytest.raises(InputError, match="at least one size from 2 to 12"):
        measured_width(rho, [1, 64], [1.0, 2.0])
