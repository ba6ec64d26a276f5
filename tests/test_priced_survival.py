"""priced_survival: what it verifies, given survivals, a cost and its own past."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from simulator.cost import StepCost, find_profile
from simulator.engine.inputs import settled
from simulator.orders.families.sampled import SampledOrder
from simulator.policies.priced_survival import PricedSurvival, accounts
from simulator.policy import Outcome
from tests.policy_lab import make_lab, make_load, make_recording, make_step, prepared
from tests.synthetic import make_hidden
from traces.common.errors import InputError


@pytest.fixture(scope="module", params=["pool", "hidden"])
def lab(request):
    return make_lab(make_recording(request.param))


def step_of(lab, policy, batch):
    anchors = np.resize(lab.recording.anchors_of(split="report"), batch)
    return make_step(lab, policy.plan(make_load(batch)), anchors)


def seconds(lab, widths):
    packed, context = np.array(widths) + 1, np.full(len(widths), 9)
    return lab.cost.step(packed, context, drafted=True, tree=True).total_s


@pytest.mark.parametrize("batch", [1, 3])
def test_ratio_takes_the_most_tokens_per_second(lab, batch):
    """Of every choice of widths, each priced by `StepCost.step`; the smallest of equals."""
    policy = prepared(PricedSurvival(price="ratio", nodes=9, nodes_alone=60), lab)
    step = step_of(lab, policy, batch)
    size = step.draft.size.tolist()
    survival = policy._calibration.path(np.exp(step.draft.score))

    def rate(widths):
        tokens = batch + sum(survival[r, :w].sum() for r, w in enumerate(widths))
        return tokens / seconds(lab, widths)

    best = max(rate(chosen) for chosen in itertools.product(*(range(n + 1) for n in size)))
    widths = policy.allocate(step)
    assert rate(widths) == pytest.approx(best, rel=1e-12)
    assert 0 < widths.sum() <= sum(size)


def test_local_prices_move_nodes_to_hard_requests(lab):
    ratio, local = (prepared(PricedSurvival(price=p), lab) for p in ("ratio", "local"))
    local._pricing.exponents[:] = -2.0
    step = step_of(lab, ratio, 8)
    nodes = np.arange(1, step.draft.score.shape[1] + 1)
    score = np.tile(np.log(0.98) * nodes, (8, 1))  # easy stretches
    score[4:] = np.log(0.75) * nodes  # hard ones
    draft = replace(step.draft, score=score, size=np.full(8, len(nodes)))
    step = replace(step, draft=draft)
    before, after = ratio.allocate(step), local.allocate(step)
    assert before[:4].sum() > before[4:].sum()
    assert after[4:].sum() / after.sum() > before[4:].sum() / before.sum()


def test_a_run_that_earns_much_per_second_verifies_less(lab):
    policy = prepared(PricedSurvival(price="lambda"), lab)
    step = step_of(lab, policy, 8)
    policy.allocate(step)
    sizes = []
    for rate in (10.0, 1e3, 1e5):
        accounts.earn(policy._pricing.accounts, 3, rate * 1e6, 1e6)  # outweighs what was before
        sizes.append(int(policy.allocate(step).sum()))
    assert sizes[0] >= sizes[1] >= sizes[2]
    assert sizes[0] > sizes[2]


@pytest.mark.parametrize(("limit_ms", "over"), [(1e-3, 3), (1e3, 0)])
def test_a_limit_that_no_step_keeps_is_said(lab, limit_ms, over):
    """Every step takes longer than a microsecond, and none longer than a second."""
    policy = prepared(PricedSurvival(max_step_ms=limit_ms, skip=False), lab)
    for batch in (1, 3, 3):
        widths = policy.allocate(step_of(lab, policy, batch))
        assert (widths.sum() == 0) == bool(over)
    if not over:
        assert policy.notes() == []
        return
    (note,) = policy.notes()
    shortest_ms = min(seconds(lab, [0] * batch) for batch in (1, 3)) * 1e3
    assert note.startswith(f"policy.max_step_ms is {limit_ms:g}: 3 of 3 steps that drafted")
    assert f"(the shortest {shortest_ms:.3g} ms)" in note


def test_it_rests_when_drafting_costs_more_than_it_gains(lab):
    policy = prepared(PricedSurvival(), lab)
    slow = StepCost(lab.cost.profile, draft_steps=50)
    step = step_of(lab, policy, 4)
    step = replace(step, cost=slow)
    policy.allocate(step)
    plans = [policy.plan(make_load(4)) for _ in range(7)]
    assert plans[:5] == [None] * 5
    assert plans[5] is not None
    assert plans[6] is None
    assert prepared(PricedSurvival(skip=False), lab).plan(make_load(4)) is not None
    assert policy.plan(make_load(16)) is not None  # another size of batch has its own account


def test_a_lone_request_may_have_a_larger_tree(lab):
    policy = prepared(PricedSurvival(nodes=15, nodes_alone=31), lab)
    assert policy.plan(make_load(1)).nodes == 31
    assert policy.plan(make_load(2)).nodes == 15


def test_the_step_limit_holds(lab):
    limit_ms = seconds(lab, [3, 3, 3, 3]) * 1e3
    policy = prepared(PricedSurvival(max_step_ms=limit_ms, skip=False), lab)
    free = prepared(PricedSurvival(), lab)
    step = step_of(lab, policy, 4)
    assert free.allocate(step).sum() > 12
    assert seconds(lab, policy.allocate(step)) * 1e3 <= limit_ms


def test_late_requests_get_more_nodes(lab):
    policy = prepared(PricedSurvival(tpot_ms=5.0, price="ratio"), lab)
    step = step_of(lab, policy, 6)
    names = ("score", "depth", "parent", "size")
    first = {name: getattr(step.draft, name)[np.zeros(6, int)] for name in names}
    step = replace(step, draft=replace(step.draft, **first))
    before = policy.allocate(step)
    assert np.ptp(before) <= 1  # the same drafts, no one late
    ids, one = np.arange(6), np.ones(6, np.int64)
    tokens = np.array([1, 9, 9, 9, 9, 9])
    for _ in range(40):
        policy.observe(Outcome(0.02, 0.02, True, ids, one, one, tokens))
    after = policy.allocate(step)
    assert after[0] > after[1:].max()


def test_padding_is_used(lab):
    dense = StepCost(find_profile("b300"), packing="dense")
    policy = prepared(PricedSurvival(), lab)
    step = replace(step_of(lab, policy, 5), cost=dense)
    widths = policy.allocate(step)
    assert np.array_equal(widths, np.minimum(step.draft.size, widths.max()))


# ---------------------------------------------------------------- sampled drafts


@pytest.fixture(scope="module")
def hot_lab():
    rng = np.random.default_rng(5)
    return make_lab(make_hidden(rng, depths=7, lengths=[12] * 9, sequences=9, temperature=1.0))


def test_a_sampled_step_is_sized_by_the_step_before(hot_lab):
    policy = prepared(PricedSurvival(draws="sampled"), hot_lab)
    step = step_of(hot_lab, policy, 4)
    assert isinstance(step.order, SampledOrder)
    assert policy.allocate(step).sum() == 4  # nothing known: one each
    settled_for = round(policy._pricing.accounts[2, accounts.BUDGET] * 4)
    # other values of what is drawn now change who is verified, but not how much
    other = step_of(hot_lab, policy, 4)
    score = np.where(np.isfinite(other.draft.score), other.draft.score - 1.0, -np.inf)
    lower = replace(other, draft=replace(other.draft, score=score))
    assert policy.allocate(lower).sum() == settled_for


def test_sampled_drafts_need_a_temperature(lab):
    with pytest.raises(InputError, match="draws is 'sampled', but .* has temperature 0"):
        prepared(PricedSurvival(draws="sampled"), lab)


# ---------------------------------------------------------------- temperatures


def test_temperature_chooses_the_recording():
    trace = {
        "recording": "small_semi_t0",
        "at_temperature": {0: "small_semi_t0", 1: "small_semi_t1"},
    }
    for wanted, name in ((None, "small_semi_t0"), (0, "small_semi_t0"), (1.0, "small_semi_t1")):
        found = settled({"trace": trace, "temperature": wanted})
        assert found["trace"] == {"recording": name}
        assert found["temperature"] is None
    with pytest.raises(InputError, match=r"temperature is 0.5; .*small_semi_t0: 0, 1, or null"):
        settled({"trace": trace, "temperature": 0.5})
    with pytest.raises(InputError, match=r"temperature is 'hot'; accepted: a number, or null"):
        settled({"trace": trace, "temperature": "hot"})


def test_temperature_does_not_replace_a_recording_given_by_its_path():
    trace = {"recording": "small_block_t0", "at_temperature": {0: "small_semi_t0", 1: "x"}}
    found = settled({"trace": trace, "temperature": 0})
    assert found["trace"] == {"recording": "small_block_t0"}
    with pytest.raises(InputError, match=r"temperature is 1; .*small_block_t0: 0, or null"):
        settled({"trace": trace, "temperature": 1})
