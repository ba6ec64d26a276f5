"""The size of a step: a known staircase, what is charged, and what is remembered between steps."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from simulator.cost import LatencyProfile, StepCost, VerifyRow, find_profile
from simulator.policies.priced_survival import accounts, attention_s
from simulator.policies.priced_survival.accounts import LONGEST, MOST, NODES, REST, new_accounts
from simulator.policies.priced_survival.token_worth import (
    AHEAD,
    TpotWeights,
    _rounds_ahead,
    _slope,
    expected,
)
from simulator.policies.shared.choices import FIRST, RATE, WORTH, best_nodes, work_of
from simulator.policy import Draft, Load, Outcome, Step

SURVIVAL = np.array([[0.9, 0.6, 0.5, 0.3, 0.25, 0.22, 0.2, 0.19, 0.18, 0.17, 0.1]])


def staircase() -> StepCost:
    """10 s with 0 to 3 nodes of a lone request, 12 up to 10, 14 beyond; drafts are free."""
    shipped = find_profile("b300")
    ends = ((4, 1e4), (11, 1.2e4), (1 << 14, 1.4e4))
    rows = tuple(VerifyRow(None, 0, total, ms, True) for total, ms in ends)
    free = tuple(type(row)(row.batch, row.kv_prefix_tokens, 0.0) for row in shipped.draft)
    return StepCost(LatencyProfile("stairs", shipped.header, rows, free))


@pytest.mark.parametrize(
    ("goal", "price", "limit_s", "nodes"),
    [
        # Ratios .300 at 3 nodes, .275 at 4, .3758 at 10: one node ahead never sees it.
        (RATE, 0.0, math.inf, 10),
        (FIRST, 0.0, math.inf, 3),
        # Nodes 4 to 10 are worth 1.51 and take 2 seconds; the eleventh is worth .1 and takes 2.
        (WORTH, 1.51 / 2 + 1e-6, math.inf, 3),
        (WORTH, 1.51 / 2 - 1e-6, math.inf, 10),
        (WORTH, 0.1 / 2 - 1e-6, math.inf, 11),
        (RATE, 0.0, 13.0, 10),
        (RATE, 0.0, 11.0, 3),
        (RATE, 0.0, 9.0, 0),
    ],
)
def test_nodes_of_a_lone_request(goal, price, limit_s, nodes):
    cost, work = staircase(), work_of(1, SURVIVAL.shape[1])
    here, aim = (1, 0.0, 11, True), (goal, price, limit_s, False, 1.0)
    depth = np.ones(SURVIVAL.shape, np.int64)
    rows = np.zeros(1, np.int64), SURVIVAL, np.array([11]), depth
    found = best_nodes(cost.prices, cost.floor, here, aim, *rows, work)
    assert work.width.tolist() == [nodes]
    assert found[:2] == (nodes, pytest.approx(SURVIVAL[0, :nodes].sum()))


@pytest.mark.parametrize("slope", [1e-6, 0.0])  # 0: no context was measured
def test_attention_is_charged_by_the_context_beyond_the_mean(slope):
    def verify_s(batch, total, context):
        return 1.0 + total * context * slope

    load = Load(0.0, 2, 0, 2, np.array([100, 300]), np.array([9, 9]), np.arange(2))
    step = Step(load, Draft(None, None, None, np.ones(2)), None, SimpleNamespace(verify_s=verify_s))
    assert np.allclose(attention_s(step), [-100 * slope, 100 * slope], atol=1e-12)


# ---------------------------------------------------------------- accounts


def settled(longest: int, surplus: float, times: int = 1) -> np.ndarray:
    book = new_accounts([longest])
    for _ in range(times):
        accounts.smooth(book, 0, accounts.SURPLUS, surplus, accounts.SHARP)
    return book


def test_drafting_rests_while_it_does_not_pay_and_is_tried_again():
    assert not accounts.rests(new_accounts([4 * REST]), 0)
    book = settled(4 * REST, -0.1)
    asked = [accounts.rests(book, 0) for _ in range(3 * REST + 3)]
    assert asked == [True] * REST + [False] + [True] * 2 * REST + [False, True]
    for _ in range(60):
        accounts.smooth(book, 0, accounts.SURPLUS, 0.2, accounts.SHARP)
    assert not accounts.rests(book, 0)


@pytest.mark.parametrize("longest", [REST, 2 * REST, LONGEST])
def test_a_rest_never_exceeds_its_longest(longest):
    book = settled(longest, -0.1)
    asked = [accounts.rests(book, 0) for _ in range(1000)]
    assert book[0, MOST] == longest
    assert np.diff(np.flatnonzero(~np.array(asked))).max() == longest + 1


def test_the_price_is_what_was_earned_per_second():
    book = new_accounts([REST])
    assert accounts.price_of(book, 0) == 0.0
    accounts.earn(book, 0, 6.0, 2.0)
    assert accounts.price_of(book, 0) == 3.0
    for _ in range(2000):  # ten half-lives
        accounts.earn(book, 0, 1.0, 1.0)
    assert math.isclose(accounts.price_of(book, 0), 1.0, rel_tol=1e-2)


def test_batches_of_similar_size_share_an_account():
    places = [accounts.account_at(batch) for batch in (1, 2, 3, 4, 5, 8, 9, 256, 257)]
    assert places == [0, 1, 2, 2, 3, 3, 4, 8, 9]


def test_running_means_start_with_the_first_step():
    book = new_accounts([REST])
    for nodes in (4.0, 14.0):
        accounts.smooth(book, 0, NODES, nodes, accounts.SMOOTH)
    assert book[0, NODES] == pytest.approx(5.0)


def test_late_requests_gain_weight():
    """One round of 30 ms and 1 token against 20 ms: exp(.1 x .5)."""
    late = TpotWeights(20.0)
    ids, one = np.array([3, 4]), np.array([1, 2])
    late.observe(Outcome(0.03, 0.03, True, ids, one, one, one))
    weights = late.of(np.array([4, 3, 9]))
    assert np.allclose(weights, [1.0, math.exp(0.05), 1.0])  # request 4: 15 ms, clipped at 1
    for _ in range(200):
        late.observe(Outcome(0.03, 0.3, True, ids, one, one, one))
    assert late.of(ids).max() == 8.0
    assert (TpotWeights(None).of(ids) == 1).all()


# ---------------------------------------------------------------- worth


def test_weights_have_mean_1_and_favour_hard_stretches():
    survival = np.array([[0.9, 0.8], [0.1, 0.1]])
    stretch = expected(survival)
    assert stretch.tolist() == [2.7, 1.2]

    def weights(widths, exponents, nodes):
        pricing = accounts.Pricing(None, None, 0.0, 0, 1, 0, np.log(widths), np.array(exponents))
        work = work_of(2, 0)
        accounts.weigh(np.arange(2), stretch, 2, nodes, pricing, work)
        return work.weight

    found = weights((1, 4), (-0.2, -0.6), 2.0)  # half-way on the logarithm: exponent -.4
    assert math.isclose(found.mean(), 1.0)
    assert math.isclose(found[1] / found[0], (2.7 / 1.2) ** 0.4)
    assert np.allclose(weights((1,), (0.0,), 5.0), 1.0)
    assert np.allclose(weights((1, 4), (0.0, -1.0), np.nan), 1.0)  # no step yet: one node


def test_slope_is_least_squares_and_never_positive():
    rng = np.random.default_rng(1)
    x = rng.random(200)
    y = -0.5 * x + 0.1 * rng.random(200)
    assert math.isclose(_slope(x, y), np.polyfit(x, y, 1)[0])
    assert _slope(x, -y) == 0.0
    assert _slope(x[:10], y[:10]) == 0.0  # too few


def test_rounds_ahead_counts_parts_of_rounds():
    """Text 0: 20 anchors, rounds at 0, 5 and 10; 16 tokens on from 0 lie 6 tenths into the third.

    The third round advances 10, to the end. Text 1 has 17 anchors in rounds of 1.
    """

    class Texts:
        anchor_counts = np.array([20, 17])
        anchor_sequence = np.repeat([0, 1], [20, 17])
        anchor_output = np.concatenate([np.arange(20), np.arange(17)])
        remaining_outputs = np.concatenate([np.arange(20, 0, -1), np.arange(17, 0, -1)])

    class Some:
        recording = Texts

    anchors = np.concatenate([[0, 5, 10], np.arange(20, 37)])
    rounds, inside = _rounds_ahead(Some, anchors)
    assert AHEAD == 16
    assert inside.tolist() == [True, False, False, True] + [False] * 16
    assert math.isclose(rounds[0], 2.6)
    assert math.isclose(rounds[3], 16.0)
