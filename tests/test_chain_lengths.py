"""One chain length per batch: SmartSpec, tables and SGLang's tiers, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.cost import DraftRow, StepCost, VerifyRow, find_profile
from simulator.orders import ChainOrder
from simulator.policies.batch_schedule import BatchSchedule
from simulator.policies.sglang_adaptive import SGLangAdaptive
from simulator.policies.smartspec import SmartSpec, draft_line, verify_line
from simulator.policy import Outcome
from tests.policy_lab import chain_step, make_lab, make_load, make_recording, prepared, staircase
from tests.synthetic import make_geometric


def outcome(request, accepted, width) -> Outcome:
    accepted, width = np.array(accepted), np.array(width)
    return Outcome(0.0, 0.01, bool(width.any()), np.array(request), width, accepted, accepted + 1)


def priced(rows, drafts, **settings) -> StepCost:
    """A cost of (batch, kv, total, ms) eager rows and (batch, kv, ms) drafts."""
    profile = find_profile("mi355x")
    verify = tuple(VerifyRow(b, kv, total, ms, False) for b, kv, total, ms in rows)
    draft = tuple(DraftRow(*row) for row in drafts)
    header = profile.header.with_(graph_sizes=())
    return StepCost(replace(profile, header=header, verify=verify, draft=draft), **settings)


def test_affine_costs_recover_planes_exactly():
    """ms = 5 + 0.001 context tokens + 0.02 batched tokens; drafts 1 + 0.0001 and 0.3 a request."""
    rows = [
        (b, kv, b * n, 5 + 0.001 * b * kv + 0.02 * b * n)
        for b in (1, 4)
        for kv in (100, 500)
        for n in (1, 8)
    ]
    drafts = [(b, kv, 1 + 0.0001 * b * kv + 0.3 * b) for b in (1, 4) for kv in (100, 500)]
    cost = priced(rows, drafts, draft_steps=2)
    line = verify_line(cost)
    assert line.fixed_s == pytest.approx(5e-3)
    assert line.per_context_token_s == pytest.approx(1e-6)
    assert line.per_batched_token_s == pytest.approx(2e-5)
    assert line.at(1000, np.array([10, 20])) == pytest.approx([6.2e-3, 6.4e-3])
    assert draft_line(cost).at(1000, 3) == pytest.approx(2 * (1 + 0.1 + 0.9) * 1e-3)


def test_affine_costs_leave_out_what_was_not_varied():
    """b300 was timed by total tokens at one prefix, its drafter at one prefix by batch."""
    cost = StepCost(find_profile("b300"))
    verify, draft = verify_line(cost), draft_line(cost)
    assert verify.per_context_token_s == draft.per_context_token_s == 0
    rows = cost.profile.verify
    slope, level = np.polyfit([r.packed_tokens_total for r in rows], [r.verify_ms for r in rows], 1)
    assert verify.per_batched_token_s == pytest.approx(slope * 1e-3)
    assert verify.fixed_s == pytest.approx(level * 1e-3)
    one = priced([(1, 100, 1, 5.0)], [(1, 100, 1.0)])
    assert verify_line(one).at(9, 9) == pytest.approx(5e-3)
    assert draft_line(one).at(9, 9) == pytest.approx(1e-3)


def smartspec(prices: StepCost, alpha: float = 0.5, **settings) -> SmartSpec:
    """Prepared for chains of 7 tokens, new requests at `alpha`."""
    lab = replace(make_lab(make_recording("pool")), cost=prices)
    policy = prepared(SmartSpec(**settings), lab)
    policy._usual = (alpha, 1.0)
    return policy


def test_smartspec_maximises_goodput_on_a_line():
    """alpha 1/2: 1, 1.5, 1.75, 1.875 tokens at k = 0 to 3; the line is c + packed ms, draft 1 ms.

    c = 1: 1 / 2 = .5 without a draft, 1.5 / 4 = .375 at k = 1: plain decoding. c = 9: 1 / 10,
    1.5 / 12 = .125, 1.75 / 13 = .1346, 1.875 / 14 = .1339: k = 2.
    """
    steep = smartspec(priced([(1, 100, 1, 2.0), (1, 100, 9, 10.0)], [(1, 100, 1.0)]))
    assert steep.plan(make_load(1)) is None
    prices = priced([(1, 100, 1, 10.0), (1, 100, 9, 18.0)], [(1, 100, 1.0)])
    for longest, chosen in ((None, 2), (2, 2), (1, 1)):
        policy = smartspec(prices, max_length=longest)
        assert policy.plan(make_load(1)) == ChainOrder()
        assert policy.allocate(chain_step([[0.9] * 7])).tolist() == [chosen]


def test_smartspec_adds_up_the_requests():
    """alphas .9 and .1, 11 + 2k ms with a draft of 1 ms: 2 / 12 at k = 0; then 3 / 14 = .214,
    3.82 / 16 = .2388, 4.55 / 18 = .2528, 5.206 / 20 = .2603, 5.796 / 22 = .2635,
    6.328 / 24 = .2637, 6.806 / 26 = .2618 at k = 1 to 7.
    """
    policy = smartspec(priced([(1, 100, 1, 10.0), (1, 100, 9, 18.0)], [(1, 100, 1.0)]))
    policy._rates = {3: (0.9, 1.0), 4: (0.1, 1.0)}
    policy.plan(make_load([3, 4]))
    tokens = [sum(a**j for a in (0.9, 0.1) for j in range(k + 1)) for k in range(8)]
    assert tokens[1] == pytest.approx(3.0)
    assert tokens[6] == pytest.approx(6.328, abs=1e-3)
    assert policy.allocate(chain_step([[0.9] * 7] * 2)).tolist() == [6, 6]


def test_smartspec_sees_steps_only_when_it_is_told_to_measure():
    """10 ms up to 4 packed tokens, 15 ms up to 8, draft 1 ms; alpha .6.

    Measured: 2.176 / 11 = .198 at k = 3, the plateau's end; 2.458 / 16 = .154 at k = 7.
    The line is 5 + 1.25 packed: 1.6 / 8.5 = .188, 1.96 / 9.75 = .201, 2.176 / 11 at k = 1 to 3.
    """
    prices = staircase([(4, 10.0), (8, 15.0)], draft_ms=1.0)
    for cost, chosen in (("measured", 3), ("affine", 2)):
        policy = smartspec(prices, alpha=0.6, cost=cost)
        policy.plan(make_load(1))
        assert policy.allocate(chain_step([[0.9] * 7])).tolist() == [chosen]


def test_smartspec_averages_accepted_over_tested_tokens():
    """From 1 accepted of 2 tested, weight .5: 3 of 3 (width 3) gives 2 / 2.5; 0 of 1, 1 / 1.75."""
    policy = smartspec(staircase([(8, 9.0)]), weight=0.5)
    policy._usual = (1.0, 2.0)
    policy.observe(outcome([4, 9], [3, 0], [3, 3]))
    assert policy._alphas(make_load([4, 7, 9])) == pytest.approx([2 / 2.5, 0.5, 0.5 / 1.5])
    policy.observe(outcome([4], [0], [3]))
    assert policy._alphas(make_load([4])) == pytest.approx([1 / 1.75])
    policy.observe(outcome([4], [0], [0]))  # plain decoding says nothing
    assert policy._alphas(make_load([4])) == pytest.approx([1 / 1.75])


def test_smartspec_starts_at_the_rate_of_the_calibration_split():
    """A chain that accepts every token with chance .7, whatever came before."""
    recording = make_geometric(0.7, np.random.default_rng(0), sequences=12, length=400)
    policy = prepared(SmartSpec(), make_lab(recording))
    assert policy.describe()["alpha_at_start"] == pytest.approx(0.7, abs=0.03)


def test_tables_hold_at_their_edges():
    policy = prepared(BatchSchedule(), make_lab(make_recording("pool"), max_batch=256))
    lengths = {}
    for batch in (1, 7, 8, 31, 32, 63, 64, 500):
        load = make_load(batch)
        drafts = policy.plan(load) is not None
        step = chain_step([[0.5] * 7] * batch)
        lengths[batch] = int(policy.allocate(step)[0]) if drafts else 0
        assert drafts == (lengths[batch] > 0)
    assert lengths == {1: 7, 7: 7, 8: 3, 31: 3, 32: 1, 63: 1, 64: 0, 500: 0}


def sglang(**settings) -> SGLangAdaptive:
    return prepared(SGLangAdaptive(**settings), make_lab(make_recording("pool")))


def run(policy: SGLangAdaptive, batch: int, accepted: float, steps: int) -> list[int]:
    """The lengths used in `steps` steps of `batch` requests that accept this on average."""
    used = []
    for _ in range(steps):
        load = make_load(batch)
        order = policy.plan(load)
        width = policy.allocate(chain_step([[0.5] * 7] * batch))
        assert (order is None) == (not width.any())
        used.append(int(width[0]))
        got = np.full(batch, accepted)
        policy.observe(outcome(np.arange(batch), got, width))
    return used


def test_sglang_moves_every_five_steps_after_ten():
    """Lengths 1, 3, 5, 7; it starts at 5 with an average of 4.

    Accepting 5: 5 - .8^15 = 4.965 after 15 steps, above 4.5: up to 7, and 4.972 after 16.
    Accepting 0 from there: 2.036 at step 20, at most 4.25 (5 - .75) and 2.25, above .25: down to 3
    at once. .667 at step 25, above .25: stays. .219 at step 30: down to 1.
    """
    policy = sglang()
    assert run(policy, 2, 5.0, 16) == [5] * 15 + [7]
    assert run(policy, 2, 0.0, 15) == [7] * 4 + [3] * 10 + [1]


def test_sglang_goes_to_zero_and_probes_from_there():
    """Tier 0, 1, 3 starts at 1, average 0, and down to 0 takes an average of at most .5."""
    policy = sglang()
    # accepting 0.4 of 1: after 15 steps .4 (1 - .8^15) = .386 <= .5
    assert run(policy, 8, 0.4, 16) == [1] * 15 + [0]
    # at 0 nothing is averaged; five steps later one step up, whatever the average
    assert run(policy, 8, 0.0, 5) == [0, 0, 0, 0, 1]
    # accepting 1 each: .386 -> 1 - .614 x .8^4 = .749 > .5 at step 25: up to 3
    assert run(policy, 8, 1.0, 5) == [1, 1, 1, 1, 3]


def test_sglang_tiers_keep_their_own_state():
    policy = sglang()
    run(policy, 2, 5.0, 16)
    assert run(policy, 8, 1.0, 1) == [1]
    assert run(policy, 2, 5.0, 1) == [7]
    assert run(policy, 64, 0.0, 30) == [0] * 30
    assert run(policy, 32, 0.0, 1) == [1]
    started = sglang(initial=3)
    assert [run(started, batch, 1.0, 1) for batch in (1, 8, 32, 64)] == [[3], [3], [1], [0]]


def test_sglang_starts_a_tier_at_zero_with_the_average_of_its_first_probe():
    """Initial 0: average -1 means no history; the probe of 1 starts from 0 accepted."""
    policy = sglang(initial=0, warmup=0, interval=1)
    assert run(policy, 32, 1.0, 2) == [0, 1]
    assert policy._state(32).average == pytest.approx(0.2)  # 0 + .2 x (1 - 0)
    assert run(policy, 32, 1.0, 1) == [0]  # .2 <= .5
