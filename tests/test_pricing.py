"""The size of a step: what nodes are worth against the staircase of its cost."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from simulator.cost import HostOverhead
from simulator.policies.priced_survival.accounts import LONGEST, REST, Account, Accounts
from simulator.policies.priced_survival.limits import TpotWeights
from simulator.policies.priced_survival.offer import Offer, attention_s, offer_of
from simulator.policies.priced_survival.token_worth import (
    AHEAD,
    Worth,
    _rounds_ahead,
    _slope,
    expected,
)
from simulator.policy import Draft, Load, Outcome, Step

SURVIVAL = np.array([0.9, 0.6, 0.5, 0.3, 0.25, 0.22, 0.2, 0.19, 0.18, 0.17, 0.1])
STAIRCASE = np.array([10.0] * 4 + [12.0] * 7 + [14.0])  # seconds with 0..11 nodes


class Staircase:
    """A cost model by hand: seconds by total tokens, and a draft."""

    packing = "ragged"
    host = HostOverhead()

    def __init__(self, step_s, draft_s=0.0, packing="ragged"):
        self.step_s, self._draft_s, self.packing = step_s, draft_s, packing

    def draft_s(self, batch, context):
        return self._draft_s

    def verify_curve_s(self, batch, totals, context):
        return np.array([self.step_s(total) for total in totals])


def step_of(score, cost, depth=None):
    score = np.asarray(score, float)
    batch = len(score)
    size = np.isfinite(score).sum(axis=1)
    counts = np.full(batch, 9)
    load = Load(0.0, batch, 0, batch, counts, counts, np.arange(batch))
    depth = np.ones(score.shape, np.uint8) if depth is None else depth
    draft = Draft(score, depth, np.full(score.shape, -1, np.int16), size)
    return Step(load, draft, None, cost)


def test_the_best_rate_lies_behind_the_jump():
    """Ratios .300 at 3 nodes, .275 at 4, .3758 at 10: one node ahead never sees it."""
    gain = np.concatenate([[0.0], np.cumsum(SURVIVAL)])
    offer = Offer(gain, STAIRCASE, 1.0, np.zeros(11, np.int64), np.array([11]))
    assert [round(offer.rate(n), 4) for n in (3, 4, 10)] == [0.3, 0.275, 0.3758]
    assert offer.best_by_rate() == 10
    assert offer.widths(10).tolist() == [10]


def test_a_jump_pays_where_its_nodes_exceed_its_seconds_at_the_price():
    """Nodes 4 to 10 are worth 1.51 and take 2 seconds; the eleventh is worth .1 and takes 2."""
    gain = np.concatenate([[0.0], np.cumsum(SURVIVAL)])
    offer = Offer(gain, STAIRCASE, 1.0, np.zeros(11, np.int64), np.array([11]))
    assert math.isclose(gain[10] - gain[3], 1.51)
    assert offer.best_at(1.51 / 2 + 1e-6) == 3
    assert offer.best_at(1.51 / 2 - 1e-6) == 10
    assert offer.best_at(0.1 / 2 - 1e-6) == 11
    assert offer.best_at(None) == 10  # no price yet: the rate


@pytest.mark.parametrize("seed", range(20))
def test_no_other_widths_have_a_better_rate(seed):
    rng = np.random.default_rng(seed)
    batch, nodes = 3, 4
    survival = -np.sort(-rng.random((batch, nodes)), axis=1)
    weight = rng.uniform(0.5, 2.0, batch)
    jumps = np.sort(rng.integers(3, 15, 3))

    def seconds(total):
        return 5.0 + 2.0 * np.searchsorted(jumps, total)

    step = step_of(np.log(survival), Staircase(seconds, draft_s=0.7))
    key = survival * weight[:, None]
    offer = offer_of(step, key, float(weight.sum()))
    best = offer.best_by_rate()
    widths = offer.widths(best)

    def rate(chosen):
        worth = weight.sum() + sum(key[r, :w].sum() for r, w in enumerate(chosen))
        return worth / (0.7 + seconds(batch + sum(chosen)))

    every = itertools.product(range(nodes + 1), repeat=batch)
    assert math.isclose(rate(widths), max(rate(chosen) for chosen in every))


@pytest.mark.parametrize("seed", range(10))
def test_padding_makes_the_nodes_below_the_largest_tree_free(seed):
    rng = np.random.default_rng(seed)
    score = np.log(-np.sort(-rng.random((3, 5)), axis=1))
    score[1, 3:] = -np.inf  # a smaller tree

    def seconds(total):
        return 4.0 + total // 6

    step = step_of(score, Staircase(seconds, packing="dense"))
    key = np.where(np.isfinite(score), np.exp(score), 0.0)
    offer = offer_of(step, key, 3.0)
    best = offer.best_by_rate()
    rates = [(3 + key[:, :p].sum()) / seconds(3 * (p + 1)) for p in range(6)]
    assert best == int(np.argmax(rates))
    assert offer.widths(best).tolist() == [best, min(best, 3), best]


def test_no_step_is_longer_than_the_limit():
    score = np.log(SURVIVAL)[None]
    step = step_of(score, Staircase(lambda total: STAIRCASE[total - 1]))
    assert offer_of(step, SURVIVAL[None], 1.0, limit_s=13.0).best_by_rate() == 10
    assert offer_of(step, SURVIVAL[None], 1.0, limit_s=11.0).best_by_rate() == 3
    assert offer_of(step, SURVIVAL[None], 1.0, limit_s=9.0).best_by_rate() == 0


def test_attention_is_charged_by_the_context_beyond_the_mean():
    class Linear(Staircase):
        def verify_s(self, batch, total, context):
            return 1.0 + total * context * 1e-6

    step = step_of(np.log([[0.5], [0.5]]), Linear(None))
    load = Load(0.0, 2, 0, 2, np.array([100, 300]), np.array([9, 9]), np.arange(2))
    step = Step(load, step.draft, None, step.cost)
    assert np.allclose(attention_s(step), [-100e-6, 100e-6])


def test_attention_costs_nothing_where_no_context_was_measured():
    class Flat(Staircase):
        def verify_s(self, batch, total, context):
            return 1.0

    assert (attention_s(step_of(np.log([[0.5], [0.5]]), Flat(None))) == 0).all()


# ---------------------------------------------------------------- accounts


def test_drafting_rests_while_it_does_not_pay_and_is_tried_again():
    account = Account(longest=4 * REST)
    assert not account.rests()
    account.settle(2.0, -0.1)
    asked = [account.rests() for _ in range(3 * REST + 3)]
    assert asked == [True] * REST + [False] + [True] * 2 * REST + [False, True]
    for _ in range(60):
        account.settle(2.0, 0.2)
    assert not account.rests()


@pytest.mark.parametrize(("batch", "longest"), [(1, REST), (2, 2 * REST), (64, LONGEST)])
def test_a_lone_request_is_tried_again_sooner(batch, longest):
    account = Accounts().at(batch)
    account.settle(1.0, -0.1)
    asked = [account.rests() for _ in range(1000)]
    tried = np.flatnonzero(~np.array(asked))
    assert np.diff(tried).max() == longest + 1


def test_the_price_is_what_was_earned_per_second():
    account = Account()
    assert account.price is None
    account.earn(6.0, 2.0)
    assert account.price == 3.0
    for _ in range(2000):  # ten half-lives
        account.earn(1.0, 1.0)
    assert math.isclose(account.price, 1.0, rel_tol=1e-2)


def test_batches_of_similar_size_share_an_account():
    accounts = Accounts()
    assert accounts.at(5) is accounts.at(8)
    assert accounts.at(8) is not accounts.at(9)
    assert accounts.at(1) is not accounts.at(2)


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
    worth = Worth((1, 4), (-0.2, -0.6))
    survival = np.array([[0.9, 0.8], [0.1, 0.1]])
    assert expected(survival).tolist() == [2.7, 1.2]
    weights = worth.weights(survival, 2.0)  # half-way on the logarithm: exponent -.4
    assert math.isclose(weights.mean(), 1.0)
    assert math.isclose(weights[1] / weights[0], (2.7 / 1.2) ** 0.4)
    assert np.allclose(Worth((1,), (0.0,)).weights(survival, 5.0), 1.0)


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
