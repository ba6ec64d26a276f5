"""Choices: shared functions against brute force, and rules against what policies do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cost import Cliff, HostOverhead, StepCost, find_profile
from simulator.engine.compiled.server import falling
from simulator.orders.build import build_order
from simulator.orders.specs import BestFirstOrder
from simulator.policies.shared import choices
from simulator.policies.shared.choices import FIRST, RATE, WORTH, work_of
from simulator.policies.shared.rules import ALL, top_widths
from tests.synthetic import make_hidden

# ---------------------------------------------------------------- one budget over the batch


def merged(key, size, depth=None) -> list[int]:
    """Requests in the order in which a merge of the rows' fronts takes their nodes."""
    front, taken = [0] * len(key), []
    while heads := [
        (-key[r][front[r]], 0 if depth is None else depth[r][front[r]], r)
        for r in range(len(key))
        if front[r] < size[r]
    ]:
        request = min(heads)[2]
        front[request] += 1
        taken.append(request)
    return taken


@st.composite
def rows_of_scores(draw, most: int = 7):
    batch, nodes = draw(st.integers(1, 6)), draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    score = -np.sort(rng.integers(0, 4, size=(batch, nodes)) * 0.5, axis=1)  # many ties
    size = rng.integers(0, nodes + 1, size=batch)
    score[np.arange(nodes) >= size[:, None]] = -np.inf
    return score, size, rng.integers(1, 4, size=(batch, nodes))


def counted(requests: list[int], batch: int) -> list[int]:
    return np.bincount(np.array(requests, np.int64), minlength=batch).tolist()


@settings(max_examples=300, deadline=None)
@given(rows_of_scores(), st.booleans(), st.integers(0, 45))
def test_the_best_of_the_batch_by_a_merge_of_the_fronts(rows, by_depth, budget):
    score, size, depth = rows
    levels = depth if by_depth else None
    expected = merged(score, size, levels)[:budget]
    assert top_widths(score, size, budget, levels).tolist() == counted(expected, len(score))


@settings(max_examples=300, deadline=None)
@given(
    rows=rows_of_scores(9),
    most=st.sampled_from([1, 3, 9, ALL]),
    budget=st.integers(0, 45),
    start=st.sampled_from([np.inf, 0.0, -0.5, -1.2, -6.0, -np.inf]),
)
def test_a_shared_budget_is_the_same_wherever_it_starts(rows, most, budget, start):
    score, size, _ = rows
    work, row = work_of(len(score), 0), np.arange(len(score))
    choices.take_shared(row, score, size, len(score), most, budget, start, work)
    expected = merged(score, np.minimum(size, most))[:budget]
    assert work.width.tolist() == counted(expected, len(score))


def test_nodes_of_probability_zero_still_count():
    score = np.array([[-1.0, -np.inf], [-np.inf, -np.inf]])
    assert top_widths(score, np.array([2, 1]), 2).tolist() == [2, 0]
    assert top_widths(score, np.array([1, 1]), 2).tolist() == [1, 1]


def test_rising_scores_are_refused_and_seen():
    with pytest.raises(ValueError, match="scores rise"):
        top_widths(np.array([[-2.0, -1.0, -3.0]]), np.array([3]), 1)


@settings(max_examples=100, deadline=None)
@given(
    rows=rows_of_scores(9),
    theta=st.sampled_from([-0.5, -1.5]),
    low=st.sampled_from([-2.0, -1.9, -np.inf]),
    high=st.sampled_from([0.0, -0.2, 0.1]),
)
def test_thresholds_admit_equality_and_count_what_is_near(rows, theta, low, high):
    score, size, _ = rows
    row, width = np.arange(len(score)), np.zeros(len(score), np.int64)
    near = choices.take_above(row, score, size, len(score), theta, low, high, width)
    assert width.tolist() == (score >= theta).sum(axis=1).tolist()
    assert near == np.count_nonzero((score > low) & (score < high))


# ---------------------------------------------------------------- the staircase

seconds = st.floats(0, 2e-2)
hosts = st.builds(
    HostOverhead,
    round_s=seconds,
    node_s=st.sampled_from([0.0, 1e-5, 1e-3]),
    tree_step_s=seconds,
    ordered_node_s=st.floats(0, 1e-4),
    tree_request_s=st.floats(0, 1e-3),
    kv_move_token_s=st.sampled_from([0.0, 1e-4]),
    bubble_s=seconds,
    launch_s=st.floats(0, 5e-2),
    overlap=st.booleans(),
)
jumps = st.lists(
    st.builds(
        Cliff,
        above=st.integers(1, 60),
        factor=st.floats(1, 2),
        add_ms=st.floats(0, 3),
        per=st.sampled_from(["request", "step"]),
    ),
    max_size=2,
)
modes = st.sampled_from([(None, None), ("graphs", (1, 6, 20, 50)), ("eager", None)])


@st.composite
def staircases(draw):
    """A cost, a mean context, and falling values of a batch with ties."""
    mode, sizes = draw(modes)
    profile = draw(
        st.sampled_from(["b300", "mi355x", "h100_sxm_qwen3_8b_table6", "a6000_qwen3_8b"])
    )
    made = {"packing": draw(st.sampled_from(["ragged", "dense"])), "graph_sizes": sizes}
    more = {"host": draw(hosts), "cliffs": draw(jumps), "mode": mode}
    cost = StepCost(find_profile(profile), **made, **more)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch, nodes = int(rng.integers(1, 7)), int(rng.integers(1, 40))
    steep = rng.uniform(0.5, 1.0, (batch, 1))
    value = np.sort(steep ** rng.integers(0, 30, (batch, nodes)) * 0.9, axis=1)[:, ::-1]
    size = rng.integers(0, nodes + 1, batch)
    return cost, float(rng.integers(0, 5000)), np.ascontiguousarray(value), size, rng


def prefixes(cost, context, value, size, depth, tree):
    """Gain and seconds of the best 0, 1, 2, ... nodes, each step priced by `StepCost.step`."""
    batch = len(value)
    order = merged(value, size, depth)
    front, gain, steps = [0] * batch, [0.0], []
    for request in [None, *order]:
        if request is not None:
            gain.append(gain[-1] + float(value[request, front[request]]))
            front[request] += 1
        terms = {"drafted": True, "tree": tree and len(gain) > 1, "ordered": int(size.sum())}
        packed, contexts = np.array(front) + 1, np.full(batch, context)
        steps.append(cost.step(packed, contexts, **terms).total_s)
    return np.array(gain), np.array(steps), order


@settings(max_examples=250, deadline=None)
@given(staircases(), st.sampled_from([RATE, FIRST, WORTH]), st.booleans(), st.booleans())
def test_the_best_number_of_nodes_is_the_best_of_all(case, goal, rising, limited):
    cost, context, value, size, rng = case
    batch = len(value)
    depth, tree = rng.integers(1, 5, value.shape), bool(rng.integers(0, 2))
    gain, step_s, order = prefixes(cost, context, value, size, depth, tree)
    limit_s = float(rng.choice(step_s) * 1.0001) if limited else np.inf
    seen_s = np.maximum.accumulate(step_s) if rising else step_s
    price, base = float(gain[-1] / seen_s[-1]), float(batch)
    within = int(np.argmax(np.append(seen_s[1:] > limit_s, True))) if seen_s[0] <= limit_s else 0
    merit = gain - price * seen_s if goal == WORTH else (base + gain) / seen_s
    merit = merit[: within + 1]
    fails = np.append(merit[1:] <= merit[:-1], True)
    work, row = work_of(batch, value.shape[1]), np.arange(batch)
    here, aim = (batch, context, int(size.sum()), tree), (goal, price, limit_s, rising, base)
    tables = row, value, size, depth
    found = choices.best_nodes(cost.prices, cost.floor, here, aim, *tables, work)
    best = int(np.argmax(fails)) if goal == FIRST else int(np.argmax(merit))
    assert merit[found[0]] == pytest.approx(merit[best], rel=1e-12)
    assert work.width.tolist() == counted(order[: found[0]], batch)
    assert found[1:] == pytest.approx((gain[found[0]], seen_s[found[0]], seen_s[0]), rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(staircases(), st.sampled_from([RATE, WORTH]))
def test_padding_makes_the_nodes_below_the_largest_tree_free(case, goal):
    cost, context, value, size, _ = case
    batch, nodes = value.shape
    width = [np.minimum(size, most) for most in range(nodes + 1)]
    gain = np.array([sum(value[r, :w].sum() for r, w in enumerate(one)) for one in width])
    cost = StepCost(cost.profile, host=cost.host, packing="dense", cliffs=cost.cliffs)
    terms = {"drafted": True, "ordered": int(size.sum())}
    packed, contexts = np.ones(batch, np.int64), np.full(batch, context)
    step_s = np.array([
        cost.step(packed * (most + 1), contexts, tree=most > 0, **terms).total_s
        for most in range(nodes + 1)
    ])  # fmt: skip
    price, base = float(gain[-1] / step_s[-1]), float(batch)
    merit = gain - price * step_s if goal == WORTH else (base + gain) / step_s
    here, aim = (batch, context, terms["ordered"], True), (goal, price, np.inf, False, base)
    work = work_of(batch, nodes)
    found = choices.best_depth(cost.prices, here, aim, np.arange(batch), value, size, work)
    assert merit[found[0]] == pytest.approx(merit.max(), rel=1e-12)
    assert work.width.tolist() == width[found[0]].tolist()


# ---------------------------------------------------------------- rules


def test_rising_rows_of_a_table_are_seen():
    recording = make_hidden(np.random.default_rng(5), sequences=9, depths=5, lengths=[18] * 9)
    table = build_order(BestFirstOrder(nodes=12, branch=3), recording)
    assert falling(table)
    assert falling(table, at_once=7)
    score = table.score.copy()
    anchor = int(np.flatnonzero(table.size > 2)[-1])
    score[anchor, 1] = score[anchor, 0] + 1
    assert not falling(replace(table, score=score), at_once=7)
