"""Sequoia: its programme against all trees there are, its rates, the tree it picks."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from simulator.orders.families.shaped import ShapeOrder, realised_ranks
from simulator.policies.sequoia import Sequoia, acceptance_by_rank, best_trees
from tests.policy_lab import make_lab, make_load, make_recording, make_step, prepared
from tests.reference import RawScores

CHANCES = [(0.6, 0.2, 0.1), (0.5, 0.4), (0.3, 0.3, 0.2, 0.1), (0.9,), (0.2, 0.0, 0.5)]


@cache
def all_trees(nodes: int, layers: int) -> list[tuple]:
    """Every tree of that many nodes and at most that many layers: a tuple of its subtrees."""
    return [
        forest for forest in all_forests(nodes - 1, layers) if nodes == 1 or (layers and forest)
    ]


@cache
def all_forests(nodes: int, layers: int) -> list[tuple]:
    if nodes == 0:
        return [()]
    if layers == 0:
        return []
    return [
        (first, *rest)
        for size in range(1, nodes + 1)
        for first in all_trees(size, layers - 1)
        for rest in all_forests(nodes - size, layers)
    ]


def expected(tree: tuple, chance) -> float:
    """Committed tokens: the root's, and every child's with the chance of its rank."""
    if len(tree) > len(chance):
        return -np.inf
    return 1 + sum(p * expected(child, chance) for p, child in zip(chance, tree, strict=False))


def shape_value(parents, ranks, chance) -> float:
    reach = []
    for parent, rank in zip(parents, ranks, strict=True):
        reach.append(chance[rank] * (reach[parent] if parent >= 0 else 1.0))
    return 1 + sum(reach)


def test_there_are_as_many_trees_as_catalan_numbers():
    assert [len(all_trees(m, m)) for m in range(1, 7)] == [1, 1, 2, 5, 14, 42]


@pytest.mark.parametrize("chance", CHANCES)
def test_the_programme_finds_the_best_of_all_trees(chance):
    table = best_trees(np.array(chance), 8, 4)
    for layers in range(5):
        for nodes in range(1, 9):
            every = [expected(tree, chance) for tree in all_trees(nodes, layers)]
            best = max(every, default=-np.inf)
            assert table.tokens[layers, nodes] == pytest.approx(best, abs=1e-12)
            if best == -np.inf:
                continue
            parents, ranks = table.tree(nodes, layers)
            assert len(parents) == nodes - 1
            assert shape_value(parents, ranks, chance) == pytest.approx(best, abs=1e-12)
            assert not parents or max(ShapeOrder(parents, ranks).depths) <= layers


def test_acceptance_by_rank_counts_accepted_parents():
    # three anchors of depth 2, two children: 0 then 1; 1 then lost; lost (so nobody tried depth 2)
    ranks = np.array([[0, 1], [1, 2], [2, 0]])
    assert acceptance_by_rank(ranks, 2).tolist() == [1 / 5, 2 / 5]  # 3 anchors, 2 parents below


@pytest.mark.parametrize("kind", ["pool", "hidden"])
def test_realised_ranks_are_those_of_the_law(kind):
    recording = make_recording(kind)
    anchors = np.arange(2, recording.num_anchors, 7)
    found, raw = realised_ranks(recording, anchors, 5), RawScores(recording.arrays, recording.meta)
    for row, anchor in zip(found, anchors, strict=True):
        parent = int(recording.anchor_tokens(np.array([anchor]))[0])
        for depth, token in enumerate(recording.realised(np.array([anchor]))[0]):
            tokens = [kid for kid, _ in raw.children(anchor, depth, parent, 5)]
            assert row[depth] == (tokens.index(token) if token in tokens else 5)
            parent = int(token)


@pytest.fixture(scope="module", params=["pool", "hidden"])
def policy(request):
    lab = make_lab(make_recording(request.param))
    return prepared(Sequoia(nodes=20, branch=4, max_depth=5), lab), lab


def test_the_cheapest_token_is_chosen(policy):
    policy, lab = policy
    anchors = lab.anchors("calibration")
    assert policy.chance == pytest.approx(
        acceptance_by_rank(realised_ranks(lab.recording, anchors, 4), 4)
    )
    for batch in (1, 3, 16):
        packed, layers = policy.size_at(batch)
        cost = {
            (m, depth): lab.cost.step(
                np.full(batch, m), np.full(batch, 8192), drafted=True, tree=True
            ).total_s
            / policy._trees.tokens[depth, m]
            for m in range(2, 22)
            for depth in range(1, 6)
            if policy._trees.tokens[depth, m] > 0
        }
        assert cost[packed, layers] == min(cost.values())


def test_its_tree_is_verified_whole(policy):
    policy, lab = policy
    load = make_load(3)
    order = policy.plan(load)
    assert policy.plan(load) is order
    packed, layers = policy.size_at(3)
    assert len(order.parents) == packed - 1
    assert max(order.depths) <= layers
    value = shape_value(order.parents, order.ranks, policy.chance)
    assert value == pytest.approx(policy._trees.tokens[layers, packed])
    step = make_step(lab, order, lab.recording.anchors_of(split="report")[:3])
    assert policy.allocate(step).tolist() == [packed - 1] * 3
    fit = policy.describe()
    assert list(fit["nodes_by_batch"]) == ["1", "2", "4", "8", "16"]
    assert fit["nodes_by_batch"]["4"] == policy.size_at(4)[0] - 1
    assert len(fit["acceptance_by_rank"]) == 4
