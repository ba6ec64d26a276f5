"""DDTree, CaDDTree, BASTION, PCTree, EAGLE-2 and OPT-Tree: what they verify, what they refuse."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from simulator.orders.families.beam import BeamOrder
from simulator.orders.families.marginal import MarginalOrder
from simulator.policies.bastion import Bastion, FittedRoofline, fit_roofline
from simulator.policies.caddtree import CaDDTree, fit_convex
from simulator.policies.ddtree import DDTree
from simulator.policies.eagle2 import Eagle2
from simulator.policies.opt_tree import OptTree
from simulator.policies.pctree import PCTree
from simulator.policy import Lab
from tests.policy_lab import hand_step, make_lab, make_recording, make_step, prepared
from tests.synthetic import make_pool

SURVIVAL = (0.9, 0.6, 0.5, 0.3, 0.25, 0.22, 0.2, 0.19, 0.18, 0.17, 0.1)


class LineCost:
    """verify = 10 + .5 (packed - 1) ms at context 1000, twice that at 3000; draft 1 ms.

    A batch of B costs as if all its tokens were one request's.
    """

    def __init__(self, packed=(1, 2, 4, 8, 16)) -> None:
        self.packed = np.array(packed)
        rows = [SimpleNamespace(batch=1, kv_prefix_tokens=context) for context in (1000, 3000)]
        self.profile = SimpleNamespace(verify=[*rows, SimpleNamespace(batch=2, kv_prefix_tokens=9)])

    def width_probe(self, context=1024):
        return self.packed, self.verify_curve_s(1, self.packed, context) * 1e3

    def verify_curve_s(self, batch, totals, context):
        return (10 + 0.5 * (np.asarray(totals) - 1)) * (1 if context < 2000 else 2) * 1e-3

    def draft_s(self, batch, context):
        return 1e-3


def lab_of(recording, cost) -> Lab:
    return Lab(recording=recording, cost=cost, max_batch=4, context=1000, table=None)


def stop(survival, seconds) -> int:
    """CaDDTree's loop: the first node that does not raise (1 + mass) / seconds is not added."""
    mass = 0.0
    for n, p in enumerate(survival):
        if (1 + mass + p) / seconds(n + 1) <= (1 + mass) / seconds(n):
            return n
        mass += p
    return len(survival)


def test_caddtree_stops_at_the_first_node_that_does_not_pay():
    policy = prepared(CaDDTree(nodes=20), lab_of(make_recording("pool"), LineCost()))
    rows = [SURVIVAL, (0.9, 0.02, 0.9), (0.01, 0.9), (0.5, 0.4)]
    step = hand_step([(*row, *[0.0] * (20 - len(row))) for row in rows], [1000] * 4, LineCost())
    expected = [stop(row, lambda n: 11 + 0.5 * n) for row in rows]
    assert policy.allocate(step).tolist() == expected
    # by hand: 1.9 / 11.5 > 1 / 11 but 1.92 / 12 < 1.9 / 11.5; 1.01 / 11.5 < 1 / 11;
    # 1.5 / 11.5, 1.9 / 12 both rise, then nothing is left
    assert expected[1:] == [1, 0, 2]
    # 1 / 11 at none; one node of survival .5 / 11 gives (1 + 1 / 22) / 11.5 = 1 / 11 exactly
    policy = prepared(CaDDTree(nodes=1), lab_of(make_recording("pool"), LineCost()))
    for survival, width in ((0.5 / 11 - 1e-6, 0), (0.5 / 11 + 1e-6, 1)):
        assert policy.allocate(hand_step([(survival,)], 1000, LineCost())).tolist() == [width]
    assert policy.near_threshold == 2


def test_caddtree_is_linear_in_context_and_clamped():
    policy = prepared(CaDDTree(nodes=11), lab_of(make_recording("pool"), LineCost()))
    steep = (0.3, 0.06, 0.055, 0.05, 0.046, 0.045, 0.044, 0.04, 0.03, 0.02, 0.01)
    contexts = [10, 1000, 1600, 2600, 3000, 9000]
    step = hand_step([steep] * 6, contexts, LineCost())
    factors = [1, 1, 1.3, 1.8, 2, 2]
    expected = [stop(steep, lambda n, f=f: 1 + f * (10 + 0.5 * n)) for f in factors]
    assert policy.allocate(step).tolist() == expected
    assert expected[0] == expected[1]
    assert expected[4] == expected[5]


def test_caddtree_quirks_read_the_curve_one_token_low():
    class Kinked(LineCost):
        """Flat to 4 packed tokens, then 2 ms a token."""

        def verify_curve_s(self, batch, totals, context):
            return (10 + 2.0 * np.maximum(np.asarray(totals) - 4, 0)) * 1e-3

    lab, row = lab_of(make_recording("pool"), Kinked()), (0.2,) * 11
    step = hand_step([row], [1000], Kinked())
    seconds = (lambda n: 11 + 2 * max(n + 1 - 4, 0), lambda n: 11 + 2 * max(n - 4, 0))
    for quirks in (False, True):
        policy = prepared(CaDDTree(nodes=11, quirks=quirks), lab)
        assert policy.allocate(step).tolist() == [stop(row, seconds[quirks])] == [3 + quirks]
    assert prepared(CaDDTree(nodes=3, quirks=True), lab).verify_s(1)[0].tolist() == (
        pytest.approx([0.01] * 4)  # C_v(0) = C_v(1)
    )


def test_caddtree_batch_term_takes_the_live_batch():
    cost = LineCost()
    lone = prepared(CaDDTree(nodes=11), lab_of(make_recording("pool"), cost))
    batch = prepared(CaDDTree(nodes=11, batch_term=True), lab_of(make_recording("pool"), cost))
    rows = [SURVIVAL, SURVIVAL[3:], SURVIVAL[6:]]
    rows = [(*row, *[0.0] * (11 - len(row))) for row in rows]
    step = hand_step(rows, [1000] * 3, cost)
    expected = [stop(row, lambda n: 1 + 10 + 0.5 * (3 * (n + 1) - 1)) for row in rows]
    assert batch.allocate(step).tolist() == expected
    assert lone.allocate(step).tolist() == [stop(row, lambda n: 11 + 0.5 * n) for row in rows]
    one = hand_step(rows[:1], [1000], cost)
    assert batch.allocate(one).tolist() == lone.allocate(one).tolist()


def test_caddtree_smooths_the_jumps_of_a_measured_profile():
    lab = make_lab(make_recording("hidden"), "blackwell_qwen3_8b")
    policy = prepared(CaDDTree(nodes=120), lab)
    seconds = policy.verify_s(1)[0]
    slopes = np.diff(seconds)
    assert (slopes >= -1e-15).all()
    assert (np.diff(slopes) >= -1e-12).all()
    step = make_step(lab, policy.order, lab.recording.anchors_of(split="report")[:5])
    draft_s = lab.cost.draft_s(1, 9)
    expected = [
        stop(np.exp(row[np.isfinite(row)]), lambda n: draft_s + seconds[n])
        for row in step.draft.score
    ]
    assert policy.allocate(step).tolist() == expected
    assert policy.describe() == {"scores": "marginal_biased", "rank_cap": 50}  # the vocabulary


def bastion_width(row, roofline, fixed_ms) -> int:
    """The published loop, one packed token at a time, and the cut to 32 + 32 k."""
    packed, mass = 1, 1.0
    for p in row:
        rise = roofline(packed + 1) - roofline(packed)
        if packed >= 32 and p * (fixed_ms + roofline(packed)) <= mass * rise:
            break
        packed, mass = packed + 1, mass + p
    return (packed if packed < 32 else 32 + (packed - 32) // 32 * 32) - 1


def test_bastion_never_stops_before_32_and_cuts_to_multiples():
    policy = prepared(Bastion(nodes=130), make_lab(make_recording("pool")))
    policy._roofline, policy._fixed_ms = FittedRoofline((10.0, 0.0), (4.0, 0.1)), 2.0  # kink at 60
    rng = np.random.default_rng(0)
    rows = [np.full(130, p) for p in (0.5, 0.02, 0.012, 0.0001)]
    rows += [np.sort(rng.random(130))[::-1] ** 3 for _ in range(4)] + [np.full(20, 0.5)]
    step = hand_step([row.tolist() for row in rows], [9] * 9, None)
    widths = policy.allocate(step).tolist()
    assert widths == [bastion_width(row, policy._roofline, 2.0) for row in rows]
    assert widths[-1] == 20
    assert {31, 63, 127} & set(widths[:-1]) == set(widths[:-1]) or 95 in widths


def test_bastion_fits_a_lone_request():
    lab = make_lab(make_recording("hidden"), "h100_nvl_qwen3_8b")
    policy = prepared(Bastion(), lab)
    packed, ms = lab.cost.width_probe(8192)
    inside = (packed >= 16) & (packed <= 512)
    error = np.abs(policy._roofline(packed[inside]) / ms[inside] - 1)
    assert error.max() < 0.15  # the profile itself is not smooth
    assert policy._fixed_ms == pytest.approx(lab.cost.draft_s(1, 8192) * 1e3)
    assert policy.describe()["rank_cap"] == 50


@pytest.mark.parametrize(
    ("policy", "order", "fit"),
    [
        (PCTree(), BeamOrder(4, 4, 63), {"scores": "parent", "branch": 4, "nodes": 63}),
        (
            Eagle2(),
            BeamOrder(10, 10, 60, depth_cap=6),
            {"scores": "parent", "branch": 10, "depth_cap": 6},
        ),
        (
            OptTree(nodes=9),
            BeamOrder(9, 9, 9, depth_cap=7, min_gain=0.5),
            {"scores": "parent", "branch": 9, "depth_cap": 7},
        ),
        (
            DDTree(nodes=7),
            MarginalOrder(7, scores="marginal_biased"),
            {"scores": "marginal_biased", "rank_cap": 7},
        ),
    ],
)
def test_policies_of_whole_trees(policy, order, fit):
    lab = make_lab(make_recording("hidden"))
    prepared(policy, lab)
    assert policy.order == order
    assert policy.describe() == fit
    step = make_step(lab, policy.order, lab.recording.anchors_of(split="report")[:5])
    assert (policy.allocate(step) == step.draft.size).all()
    assert (step.draft.size <= order.nodes).all()


@pytest.mark.parametrize(
    ("policy", "fit"),
    [
        (Eagle2(), {"branch": 6, "depth_cap": 3}),
        (PCTree(k=9, packed_tokens=500), {"branch": 6, "nodes": 6 + 36 + 9 * 6}),
        (DDTree(nodes=7), {"rank_cap": 6}),
    ],
)
def test_policies_name_what_a_pool_cuts(policy, fit):
    lab = make_lab(make_pool(np.random.default_rng(1), depths=3, pool=6))
    assert prepared(policy, lab).describe() == {"scores": "marginal"} | fit
    hidden = make_lab(make_recording("hidden"))
    assert prepared(DDTree(scores="marginal"), hidden).order == MarginalOrder(15)
    assert prepared(CaDDTree(), hidden).order == MarginalOrder(255, scores="marginal_biased")


# ---------------- Fits under shape against enumeration and known solutions.


def enumerated(x, y):
    """Best of all least-squares fits over subsets of hinges whose rises come out non-negative."""
    hinges = np.maximum(x[:, None] - x[:-1], 0)
    best, values = np.inf, None
    for count in range(len(x)):
        for subset in itertools.combinations(range(len(x) - 1), count):
            design = np.column_stack([np.ones(len(x)), hinges[:, subset]])
            solution = np.linalg.lstsq(design, y, rcond=None)[0]
            error = ((design @ solution - y) ** 2).sum()
            if (solution[1:] >= -1e-9).all() and error < best - 1e-15:
                best, values = error, design @ solution
    return values


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_best_of_all_sets_of_hinges(seed):
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.integers(1, 9, rng.integers(1, 8))).astype(float)
    y = rng.normal(size=len(x)) * rng.choice([1, 10]) + rng.choice([0, 0.5]) * x
    np.testing.assert_allclose(fit_convex(x, y)(x), enumerated(x, y), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("x", "y", "at", "expected"),
    [
        ([1, 2, 4, 8], [3, 3, 5, 13], [0, 1, 3, 8, 10], [3, 3, 4, 13, 17]),  # slopes 0, 1, 2
        ([1, 2, 3], [9, 6, 3], [0, 7], 6),  # falling points become their mean
        # the line through the last three points, 1/6, 2/3, 7/6, rises by 1/2, the step to it
        # from the first point by 1/6: convex already
        ([0, 1, 2, 3], [0, 0, 1, 1], [0, 1, 2, 3], [0, 1 / 6, 4 / 6, 7 / 6]),
        ([4], [2.5], [0, 1, 2], 2.5),
    ],
)
def test_convex_fits_by_hand(x, y, at, expected):
    np.testing.assert_allclose(fit_convex(x, np.array(y, float))(at), expected, atol=1e-9)


def test_roofline_finds_both_lines():
    x = np.array([16, 32, 64, 128, 256, 512])
    y = np.maximum(10 + 0.01 * x, 4 + 0.05 * x)  # they meet at 150
    fit = fit_roofline(x, y, 1 + np.arange(6))
    assert fit.memory == pytest.approx((10, 0.01))
    assert fit.compute == pytest.approx((4, 0.05))
    np.testing.assert_allclose(fit([16, 150, 1000]), [10.16, 11.5, 54])


def test_roofline_slopes_are_never_negative_and_weights_count():
    fit = fit_roofline([1, 2], [5.0, 3.0], [1, 1])
    assert fit([0, 9]).tolist() == [4, 4]
    heavy = fit_roofline([1, 2], [5.0, 3.0], [1, 1000.0])
    assert heavy([0]) == pytest.approx(5, abs=1e-5)
