"""Rules: what policies say they do is what they do, and who may use compiled rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.compiled import kernel
from simulator.engine.compiled.kernel import ANCHOR, WIDTH, Table
from simulator.engine.compiled.plans import ALL, falling
from simulator.engine.compiled.rules import FixedWidth, Plain, Rule, SharedBudget, Threshold
from simulator.orders import BestFirstOrder
from simulator.policies.cast import Cast
from simulator.policies.fixed_chain import FixedChain
from simulator.policies.shared.selection import top_widths
from simulator.policies.treespark import TreeSpark
from simulator.policy import Draft, Policy, Step
from tests.fast_cases import POLICIES, cost_of, fitted, tables_of
from tests.policy_lab import make_load
from tests.synthetic import make_hidden, make_pool


@pytest.fixture(scope="module")
def world():
    recording = make_hidden(
        np.random.default_rng(5), sequences=9, depths=5, lengths=[18] * 9, noise=0.5
    )
    return recording, tables_of(recording)


def widths_of(rule: Rule, score: np.ndarray, size: np.ndarray) -> list[int]:
    """A rule applied node by node."""
    if isinstance(rule, Threshold):
        return [
            sum(1 for value in row[:n] if value >= rule.log_theta)
            for row, n in zip(score.tolist(), size.tolist(), strict=True)
        ]
    if isinstance(rule, FixedWidth):
        return [n if rule.width is None else min(n, rule.width) for n in size.tolist()]
    nodes = [
        (-value, request)
        for request, (row, n) in enumerate(zip(score.tolist(), size.tolist(), strict=True))
        for value in row[: n if rule.most is None else min(n, rule.most)]
    ]
    taken = [request for _, request in sorted(nodes)[: rule.nodes]]
    return [taken.count(request) for request in range(len(size))]


def agrees(policy: Policy, recording, tables, rng, most: int = 24) -> None:
    """Random steps: the rule's order and widths are those of `plan` and `allocate`."""
    for batch in range(1, most + 1):
        load, rule = make_load(batch), policy.rule(batch)
        order = policy.plan(load)
        if isinstance(rule, Plain):
            assert order is None
            continue
        assert order == rule.order
        table = tables(order)
        for _ in range(4):
            at = rng.integers(0, recording.num_anchors, batch)
            draft = Draft(table.score[at], table.depth[at], table.parent[at], table.size[at])
            width = policy.allocate(Step(load, draft, order, cost_of()))
            assert width.tolist() == widths_of(rule, draft.score, draft.size)


@pytest.mark.parametrize("name", POLICIES)
def test_rules_say_what_plan_and_allocate_do(world, name):
    recording, tables = world
    policy = fitted(POLICIES[name](), recording, cost_of(), 24, tables)
    agrees(policy, recording, tables, np.random.default_rng(6))


def test_near_thresholds_are_those_the_policy_counts(world):
    recording, tables = world
    policy = fitted(TreeSpark(nodes=20), recording, cost_of(), 24, tables)
    rule = policy.rule(3)
    score = tables(rule.order).score
    low, high = rule.near_low, rule.near_high
    assert low < rule.log_theta < high
    before = policy.near_threshold
    load, at = make_load(3), np.array([4, 5, 9])
    row = np.where(score[at] > -np.inf, np.clip(score[at], low, high), -np.inf)
    row[:, 0], row[1, 1] = high, rule.log_theta
    draft = Draft(row, None, None, np.full(3, row.shape[1]))
    policy.allocate(Step(load, draft, rule.order, cost_of()))
    assert policy.near_threshold - before == int(((row > low) & (row < high)).sum()) > 0


class Boaster(FixedChain):
    """Says one token more than it verifies."""

    def rule(self, batch: int) -> FixedWidth:
        return FixedWidth(self.order, self.length + 1)


class Mixed(Cast):
    """Shares half of what it says."""

    def rule(self, batch: int) -> SharedBudget:
        return SharedBudget(self.order, 2 * batch * self.nodes_per_request, self.max_nodes)


@pytest.mark.parametrize("policy", [Boaster(3), Mixed(width=4, nodes_per_request=2)])
def test_a_rule_that_lies_is_found_out(world, policy):
    recording, tables = world
    fitted(policy, recording, cost_of(), 24, tables)
    with pytest.raises(AssertionError):
        agrees(policy, recording, tables, np.random.default_rng(7))


# ---------------------------------------------------------------- compiled widths


def laid_out(rows, kind: int, most: int = ALL) -> tuple[Table, np.ndarray, np.ndarray]:
    """A table whose rows are in the slots, the slots, and (B, 9) scores with -inf padding."""
    size = np.array([len(row) for row in rows], np.int32)
    score = np.full((len(rows), 9), -np.inf)
    for i, row in enumerate(rows):
        score[i, : len(row)] = row
    ranks, ties = np.zeros((1, 1), np.int16), np.zeros(1, np.int32)
    slots = np.zeros((7, len(rows)), np.int64)
    slots[ANCHOR] = np.arange(len(rows))
    return Table(0, kind, most, True, True, score, size, ranks, ties), slots, score


def compiled_shared(rows, most: int, budget: int, start: float) -> list[int]:
    """Widths of a shared budget over rows of falling scores."""
    table, slots, _ = laid_out(rows, kernel.SHARED, most)
    heap, keys = np.zeros(len(rows), np.int64), np.zeros(len(rows))
    kernel._take_shared(slots, heap, keys, len(rows), table, budget, start)
    return slots[WIDTH].tolist()


falling_rows = st.lists(
    st.lists(st.sampled_from([0.0, -0.5, -1.0, -1.5, -2.0, -7.0, -np.inf]), max_size=9).map(
        lambda row: sorted(row, reverse=True)
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(
    rows=falling_rows,
    most=st.sampled_from([1, 3, 9, ALL]),
    budget=st.integers(0, 40),
    start=st.sampled_from([np.inf, 0.0, -1.0, -1.2, -6.0, -np.inf]),
)
def test_shared_budget_is_top_widths_wherever_it_starts(rows, most, budget, start):
    score, every = laid_out(rows, kernel.SHARED)[2], np.array([len(row) for row in rows])
    expected = top_widths(score, np.minimum(every, most), budget).tolist()
    assert compiled_shared(rows, most, budget, start) == expected
    assert expected == widths_of(SharedBudget(None, budget, most), score, every)


@settings(max_examples=100, deadline=None)
@given(
    rows=falling_rows,
    theta=st.sampled_from([-0.5, -1.5]),
    low=st.sampled_from([-2.0, -1.9, -np.inf]),
    high=st.sampled_from([0.0, -0.2, 0.1]),
)
def test_thresholds_admit_equality_and_count_what_is_near(rows, theta, low, high):
    table, slots, score = laid_out(rows, kernel.THRESHOLD)
    near = kernel._take_threshold(slots, len(rows), table, theta, low, high)
    assert slots[WIDTH].tolist() == (score >= theta).sum(axis=1).tolist()
    assert near == np.count_nonzero((score > low) & (score < high))


def test_rising_scores_are_seen(world):
    _, tables = world
    table = tables(BestFirstOrder(nodes=12, branch=3))
    assert falling(table)
    assert falling(table, at_once=7)
    score = table.score.copy()
    anchor = int(np.flatnonzero(table.size > 2)[-1])
    score[anchor, 1] = score[anchor, 0] + 1
    assert not falling(replace(table, score=score), at_once=7)


def test_sampled_orders_have_rules_too():
    recording = make_pool(
        np.random.default_rng(8), sequences=9, depths=4, lengths=[12] * 9, temperature=0.7
    )
    tables = tables_of(recording)
    policy = fitted(TreeSpark(nodes=15), recording, cost_of(), 24, tables)
    agrees(policy, recording, tables, np.random.default_rng(9))
