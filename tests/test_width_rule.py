"""Width rules against hand-worked and published numbers, and the shared budget by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cost import StepCost, find_profile
from simulator.policies.shared.selection import merged_requests, top_widths
from simulator.policies.shared.stop_rules import (
    best_plateau_width,
    deploy_width,
    first_stop_width,
    first_stop_widths,
    fit_line,
    measured_width,
    published_mass_curve,
    stop_width,
)
from traces.common.errors import InputError

# A step of 10 s up to 3 nodes, 12 s up to 10, 14 s beyond.
SURVIVAL = np.array([0.9, 0.6, 0.5, 0.3, 0.25, 0.22, 0.2, 0.19, 0.18, 0.17, 0.1])
STEP_S = np.array([10.0] * 4 + [12.0] * 7 + [14.0])


def test_four_masses_stop_at_two():
    # l(1) = 1 + .25 * 2 = 1.5, threshold .25 * 1.5 / 1.5 = .25 <= .3: node 2 is added.
    # l(2) = 1.75, threshold .25 * 1.8 / 1.75 = .2571 > .2: node 3 is not.
    assert stop_width(np.array([0.5, 0.3, 0.2, 0.1]), 1.0, 0.25) == 2


@pytest.mark.parametrize(("third", "stop"), [(0.2572, 3), (0.2571, 2)])
def test_threshold_after_two_nodes_is_2571(third, stop):
    # .25 * 1.8 / 1.75 = .257142...; a mass equal to its threshold is admitted (next test).
    assert stop_width(np.array([0.5, 0.3, third]), 1.0, 0.25) == stop


def test_a_mass_equal_to_its_threshold_is_admitted():
    # At N = 1: .25 * (.5 + 1) / (1 + .25 * 2) = .25 exactly, in binary too.
    assert stop_width(np.array([0.5, 0.25]), 1.0, 0.25) == 2
    assert stop_width(np.array([0.5, np.nextafter(0.25, 0)]), 1.0, 0.25) == 1


def test_first_node_is_never_questioned():
    assert stop_width(np.array([0.0, 0.0]), 1.0, 1.0) == 1


def test_a_draft_cost_lowers_the_threshold():
    # l(2) = .5 + 1.75 = 2.25, threshold .25 * 1.8 / 2.25 = .2 exactly: node 3 is added.
    assert stop_width(np.array([0.5, 0.3, 0.2 + 1e-12, 0.1]), 1.0, 0.25, draft_ms=0.5) == 3


@pytest.mark.parametrize("slope", [0.0, -0.01])
def test_a_flat_or_falling_line_never_stops(slope):
    assert stop_width(np.zeros(20), 1.0, slope) == 20


def test_published_probe_and_curve():
    packed = np.array([16, 24, 32, 48, 64, 96, 128])
    ms = np.array([30.6, 30.2, 30.6, 31.2, 31.5, 32.2, 32.6])
    c0_ms, c1_ms = fit_line(packed, ms)
    assert c0_ms == pytest.approx(30.04, abs=0.005)
    assert c1_ms == pytest.approx(0.0211, abs=0.00005)
    stop = stop_width(published_mass_curve(), c0_ms, c1_ms)
    assert stop == 120
    assert deploy_width(stop) == 127


def test_line_ignores_sizes_outside_16_to_128():
    # Through (16, 2) and (128, 4): slope 2 / 112.
    c0_ms, c1_ms = fit_line(np.array([1, 16, 128, 256]), np.array([9.0, 2.0, 4.0, 90.0]))
    assert c1_ms == pytest.approx(2 / 112)
    assert c0_ms == pytest.approx(2 - 16 * 2 / 112)


def test_line_needs_two_points():
    message = r"^mine\.csv: width probe .* at 1, 8, 16 packed .*at least two sizes from 16 to 128$"
    with pytest.raises(InputError, match=message):
        fit_line(np.array([1, 8, 16]), np.array([1.0, 2.0, 3.0]), "mine.csv")


def test_unknown_published_domain():
    with pytest.raises(InputError, match="no domain 'poetry'"):
        published_mass_curve("poetry")


@pytest.mark.parametrize(
    ("stop", "width"), [(1, 15), (15, 15), (16, 31), (44, 47), (64, 95), (113, 127), (128, 127)]
)
def test_first_deployed_width_that_reaches_the_stop(stop, width):
    assert deploy_width(stop) == width


@pytest.mark.parametrize(
    ("profile", "stop", "stop_with_draft", "width"),
    [
        ("blackwell_qwen3_8b", 44, 47, 47),
        ("blackwell_qwen3_4b", 113, 126, 127),
        ("h100_sxm_qwen3_8b_table5", None, None, 127),
        ("h100_sxm_qwen3_8b_table6", None, None, 127),
        ("h100_sxm_qwen3_4b_table5", None, None, 127),
        ("h100_sxm_qwen3_4b_table6", None, None, 127),
        ("h100_nvl_qwen3_8b", None, None, 127),
    ],
)
def test_released_rule_on_released_probes(profile, stop, stop_with_draft, width):
    cost, rho = StepCost(find_profile(profile)), published_mass_curve()
    c0_ms, c1_ms = fit_line(*cost.width_probe(1024))
    stops = [
        stop_width(rho, c0_ms, c1_ms, draft_ms) for draft_ms in (0.0, cost.draft_s(1, 1024) * 1e3)
    ]
    assert [deploy_width(found) for found in stops] == [width, width]
    if stop is not None:
        assert stops == [stop, stop_with_draft]


def test_ratio_on_a_staircase():
    # 3 nodes: 3 / 10; 4: 3.3 / 12 = .275 stops the first rule; 10: 4.51 / 12 = .3758; 11: 4.61 / 14
    assert first_stop_width(SURVIVAL, STEP_S) == 3
    assert best_plateau_width(SURVIVAL, STEP_S) == 10
    assert (1 + SURVIVAL[:10].sum()) / 12 == pytest.approx(0.3758, abs=5e-5)


def test_ratio_rules_without_gain_or_without_steps():
    flat = np.full(12, 10.0)
    assert first_stop_width(SURVIVAL, flat) == best_plateau_width(SURVIVAL, flat) == 11
    rising = 1.0 + np.arange(12)  # 1 token per second at 0 nodes, at most .95 beyond
    assert first_stop_width(SURVIVAL, rising) == best_plateau_width(SURVIVAL, rising) == 0


def test_equal_ratios_take_the_smaller_width():
    # (1 + 1) / 2 = 1 / 1 at both widths
    assert best_plateau_width(np.array([1.0]), np.array([1.0, 2.0])) == 0
    assert first_stop_width(np.array([1.0]), np.array([1.0, 2.0])) == 0


def test_base_counts_one_token_per_request():
    # Two requests: (2 + .5) / 1.2 > 2 / 1; one request: 1.5 / 1.2 > 1; eight: 8.5 / 1.2 < 8.
    step_s = np.array([1.0, 1.2])
    assert [best_plateau_width(np.array([0.5]), step_s, base) for base in (1, 2, 8)] == [1, 1, 0]


def _merge(score, size, budget, depth) -> list[int]:
    """Requests in the order a merge of the rows' fronts takes their nodes."""
    front, taken = [0] * len(score), []
    for _ in range(budget):
        heads = [
            (-score[r][front[r]], 0 if depth is None else depth[r][front[r]], r)
            for r in range(len(score))
            if front[r] < size[r]
        ]
        if not heads:
            break
        request = min(heads)[2]
        front[request] += 1
        taken.append(request)
    return taken


@st.composite
def _rows(draw):
    batch, nodes = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    score = -np.sort(rng.integers(0, 4, size=(batch, nodes)) * 0.5, axis=1)  # many ties
    size = rng.integers(0, nodes + 1, size=batch)
    score[np.arange(nodes) >= size[:, None]] = -np.inf
    depth = rng.integers(1, 4, size=(batch, nodes))
    return score, size, depth, draw(st.integers(0, batch * nodes + 1))


@settings(max_examples=300, deadline=None)
@given(_rows(), st.booleans())
def test_shared_budget_equals_a_merge_of_the_fronts(rows, by_depth):
    score, size, depth, budget = rows
    levels = depth if by_depth else None
    expected = _merge(score, size, budget, levels)
    widths = top_widths(score, size, budget, levels)
    assert widths.tolist() == np.bincount(expected, minlength=len(score)).tolist()
    everything = _merge(score, size, score.size, levels)
    request, merged = merged_requests(score, size, levels)
    assert request.tolist() == everything
    assert np.all(np.diff(merged) <= 0)


def test_shared_budget_ties_without_depth_go_to_the_first_requests():
    score = np.log(np.array([[0.5, 0.25], [0.5, 0.25], [0.9, 0.25]]))
    size = np.array([2, 2, 2])
    # .9, .5, .5, then three nodes of .25: the first request's, then the second's
    assert [top_widths(score, size, m).tolist() for m in (3, 4, 5)] == [
        [1, 1, 1],
        [2, 1, 1],
        [2, 2, 1],
    ]


def test_shared_budget_ties_by_depth():
    score = np.log(np.array([[0.5, 0.25], [0.5, 0.25], [0.9, 0.25]]))
    depth = np.array([[1, 2], [1, 2], [1, 1]])
    assert top_widths(score, np.array([2, 2, 2]), 4, depth).tolist() == [1, 1, 2]


def test_nodes_of_probability_zero_still_count():
    score = np.array([[-1.0, -np.inf], [-np.inf, -np.inf]])
    assert top_widths(score, np.array([2, 1]), 2).tolist() == [2, 0]
    assert top_widths(score, np.array([1, 1]), 2).tolist() == [1, 1]


def test_rising_scores_are_refused():
    with pytest.raises(ValueError, match="scores rise"):
        top_widths(np.array([[-2.0, -1.0, -3.0]]), np.array([3]), 1)


def test_many_first_stops_are_each_its_own():
    survival = np.stack([SURVIVAL, SURVIVAL[::-1], SURVIVAL**4])
    step_s = np.stack([STEP_S, 2 * STEP_S, 10 + np.arange(12.0)])
    expected = [first_stop_width(p, s) for p, s in zip(survival, step_s, strict=True)]
    assert first_stop_widths(survival, step_s).tolist() == expected
    shared = [first_stop_width(p, STEP_S) for p in survival]
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
