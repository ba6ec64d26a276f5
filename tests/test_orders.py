"""Orders against an explicit heap, shapes by hand, ties, limits."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.orders import (
    ABSENT,
    BestFirstOrder,
    BlockScores,
    ChainOrder,
    StaticOrder,
    build_block,
    build_order,
    cache,
)
from simulator.orders.shape import static_shape
from simulator.orders.table import ARRAYS
from tests import naive_orders as naive
from tests.naive_trees import check_rows
from tests.order_recordings import order_recordings
from tests.synthetic import make_pool, make_tree
from traces import InputError

PUBLISHED = (0.6684, -0.4587)  # TreeSpark's Platt constants, Qwen3-4B


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def recordings():
    return order_recordings()


BEST_FIRST = [
    ("pool", {}, "marginal"),
    ("pool", {"nodes": 20, "branch": 3, "depth_cap": 3, "ties": "tick"}, "marginal"),
    ("hidden", {"nodes": 40}, "parent"),
    ("hidden", {"nodes": 40, "ties": "tick", "platt": PUBLISHED}, "parent"),
    ("hidden", {"nodes": 24, "branch": 4, "scores": "marginal"}, "marginal"),
    ("hidden", {"nodes": 24, "branch": 4, "scores": "marginal_biased"}, "marginal_biased"),
    ("tied pool", {"nodes": 50, "branch": 5}, "marginal"),
    ("tied pool", {"nodes": 50, "branch": 5, "ties": "tick"}, "marginal"),
    ("tied hidden", {"nodes": 40, "branch": 6}, "parent"),
    ("tied hidden", {"nodes": 40, "branch": 6, "ties": "tick"}, "parent"),
]


@pytest.mark.parametrize(("name", "options", "kind"), BEST_FIRST)
def test_best_first_is_the_explicit_heap(recordings, name, options, kind):
    recording = recordings[name]
    table = build_order(BestFirstOrder(**options), recording)
    given = {"cap" if k == "depth_cap" else k: v for k, v in options.items() if k != "scores"}

    def reference(anchor):
        return naive.best_first(recording, anchor, kind=kind, **given)

    check_rows(table, recording, reference, step=3)


@pytest.mark.parametrize("name", ["tied pool", "tied hidden"])
def test_exact_ties_are_counted(recordings, name):
    table = build_order(BestFirstOrder(branch=5), recordings[name])
    equal = (table.score[:, 1:] == table.score[:, :-1]) & np.isfinite(table.score[:, 1:])
    assert table.ties.tolist() == equal.sum(axis=1).tolist()
    assert table.ties.sum() > 5 * len(table.ties)


def test_the_shallower_of_two_equal_scores_comes_first():
    # A -1, B -2; below both C -1, D -3. AC ties with B at -2 and is deeper.
    table = _pool_block([[[0, 1], [2, 3]]], [[[-1.0, -2.0], [-1.0, -3.0]]], branch=2)
    assert table.token[0].tolist() == [0, 1, 2, 2, 3, 3]
    assert table.score[0].tolist() == [-1, -2, -2, -3, -4, -5]
    assert table.parent[0].tolist() == [-1, -1, 0, 1, 0, 1]
    assert table.ties[0] == 1


def test_tick_puts_an_earlier_push_before_a_shallower_node():
    # Depth 1: 0 -.5, 1 -1.5, 4 -2.5. Depth 2: 2 -.5, 5 -1, 6 -9. Depth 3: 7 -1.5, 8, 9 -9.
    # Path (0, 2, 7) at -2.5 is pushed when (0, 2) pops, before (1, 5), also at -2.5, is pushed
    # by the pop of 1; but (1, 5) is shallower.
    token = [[[0, 1, 4], [2, 5, 6], [7, 8, 9]]]
    logq = [[[-0.5, -1.5, -2.5], [-0.5, -1.0, -9.0], [-1.5, -9.0, -9.0]]]
    by_depth = _pool_block(token, logq, branch=3, nodes=7)
    by_tick = _pool_block(token, logq, branch=3, nodes=7, ties="tick")
    assert by_depth.score[0].tolist() == [-0.5, -1, -1.5, -1.5, -2, -2.5, -2.5]
    assert by_depth.token[0].tolist() == [0, 2, 1, 5, 2, 4, 5]
    assert by_tick.token[0].tolist() == [0, 2, 1, 5, 2, 4, 7]


def _pool_block(token, logq, **options):
    scores = BlockScores(np.array(token), np.array(logq))
    return build_block(BestFirstOrder(**options), scores)


@pytest.mark.parametrize("name", ["pool", "hidden", "tied pool", "tied hidden"])
@pytest.mark.parametrize("platt", [None, PUBLISHED])
def test_prefixes_are_closed_and_scores_fall(recordings, name, platt):
    spec = BestFirstOrder(platt=platt, branch=5)
    table = build_order(spec, recordings[name])
    assert table.nested
    assert spec.nested
    index = np.arange(table.max_nodes)
    assert (table.parent < index).all()
    exists = index < table.size[:, None]
    assert (np.isfinite(table.score) == exists).all()
    assert (table.score[:, 1:] <= table.score[:, :-1]).all()
    above = np.take_along_axis(table.score, np.maximum(table.parent, 0).astype(int), axis=1)
    rooted = table.parent < 0
    assert (table.score <= np.where(rooted, 0, above))[exists].all()
    for width in (0, 1, 7, table.max_nodes):  # accepted(w) counts the path nodes in the prefix
        anchors = np.arange(len(table.anchors))
        expected = (table.hit_rank <= width).sum(axis=1)
        assert (table.accepted(anchors, width) == expected).all()
        assert (table.accepted(anchors, np.full(len(anchors), width)) == expected).all()


@pytest.mark.parametrize("name", ["pool", "hidden"])
def test_chain_is_the_argmax_chain(recordings, name):
    recording = recordings[name]
    table = build_order(ChainOrder(), recording)
    assert table.max_nodes == recording.depths
    for anchor in range(0, recording.num_anchors, 5):
        token, score = int(recording.anchor_tokens(np.array([anchor]))[0]), 0.0
        for depth in range(recording.depths):
            tokens, logq = naive.law(recording, anchor, depth + 1, token)
            token, score = tokens[0], score + logq[0]
            assert table.token[anchor, depth] == token
            assert table.score[anchor, depth] == pytest.approx(score, abs=1e-9)
            assert table.parent[anchor, depth] == depth - 1
    short = build_order(ChainOrder(2), recording)
    assert (short.token == table.token[:, :2]).all()
    assert short.hit_rank[:, 2:].min() == ABSENT


@pytest.mark.parametrize("name", ["pool", "hidden"])
def test_branch_one_is_the_chain(recordings, name):
    recording = recordings[name]
    chain = build_order(ChainOrder(3), recording)
    tree = build_order(BestFirstOrder(branch=1, depth_cap=3), recording)
    for array in cache.ARRAYS:
        assert (getattr(chain, array) == getattr(tree, array)).all()


@pytest.mark.parametrize("name", ["pool", "hidden", "tied hidden"])
def test_theta_trees_are_nested_prefixes(recordings, name):
    """TreeSpark's loop (stop at the first popped survival below theta) gives a prefix."""
    recording = recordings[name]
    table = build_order(BestFirstOrder(ties="tick", branch=5, nodes=60), recording)
    for anchor in range(0, recording.num_anchors, 9):
        emitted = naive.best_first(recording, anchor, nodes=60, branch=5, ties="tick")
        sizes = []
        for theta in (0.3, 0.1, 0.02, 0.005):
            kept = 0
            while kept < len(emitted) and np.exp(emitted[kept].score) >= theta:
                kept += 1
            assert kept == (np.exp(table.score[anchor]) >= theta).sum()
            sizes.append(kept)
        assert sizes == sorted(sizes)


@pytest.mark.parametrize("name", ["pool", "hidden", "tied pool", "tied hidden"])
@pytest.mark.parametrize("options", [{}, {"ties": "tick", "platt": PUBLISHED}])
def test_a_floor_ends_the_order_and_changes_nothing_above_it(recordings, name, options):
    recording = recordings[name]
    whole = build_order(BestFirstOrder(nodes=50, branch=5, **options), recording)
    for floor in (-0.5, float(np.median(whole.score[:, 10])), -1e9):
        spec = BestFirstOrder(nodes=50, branch=5, floor=floor, **options)
        table = build_order(spec, recording)
        size = (whole.score >= floor).sum(axis=1)
        assert table.size.tolist() == size.tolist()
        kept = np.arange(50) < size[:, None]
        for array in ("score", "depth", "parent", "token"):
            assert (getattr(table, array)[kept] == getattr(whole, array)[kept]).all()
        expected = np.where(whole.hit_rank <= size[:, None], whole.hit_rank, ABSENT)
        assert (table.hit_rank == expected).all()


def test_published_platt_values_along_a_path():
    # .9 -> .733 and .5 -> .387 (policies' published map), so a path of both survives .284
    table = _pool_block(
        [[[3], [4]]], np.log([[[0.9], [0.5]]]), branch=1, platt=PUBLISHED, ties="tick"
    )
    np.testing.assert_allclose(np.exp(table.score[0]), [0.733, 0.733 * 0.387], atol=6e-4)
    sure = _pool_block([[[3]]], [[[0.0]]], branch=1, platt=PUBLISHED)
    z = 0.6684 * np.log((1 - 1e-9) / 1e-9) - 0.4587  # q = 1 is clamped, not infinite
    assert np.exp(sure.score[0, 0]) == pytest.approx(1 / (1 + np.exp(-z)), rel=1e-12)


def test_static_widths_by_hand():
    shape = static_shape(StaticOrder(widths=(8, 4, 2, 2)), 7)
    # depth 2 takes rank sums 0, 1, 1, 2: children of nodes 0, 0, 1, 0; and so on
    below = [(0, 0), (0, 1), (1, 0), (0, 2), (8, 0), (8, 1), (12, 0), (12, 1)]
    tail = [(14, 0), (16, 0), (17, 0)]
    expected = [(-1, rank) for rank in range(8)] + below + tail
    assert [tuple(row[:2]) for row in shape.tolist()] == expected
    depths = [1] * 8 + [2] * 4 + [3, 3, 4, 4, 5, 6, 7]
    assert shape[:, 2].tolist() == depths
    cut = static_shape(StaticOrder(widths=(8, 4, 2, 2), tail_chain=False), 7)
    assert len(cut) == 16


def test_static_binary_tree_by_hand():
    shape = static_shape(StaticOrder(branching=(2, 2, 2, 2, 2)), 7)
    assert len(shape) == 62
    # heap numbering without its root: parent of node m is (m - 2) // 2
    assert shape[:, 0].tolist() == [-1, -1] + [(m - 2) // 2 for m in range(2, 62)]
    assert shape[:, 1].tolist() == [0, 1] * 31
    assert np.bincount(shape[:, 2]).tolist() == [0, 2, 4, 8, 16, 32]


@pytest.mark.parametrize("name", ["pool", "hidden", "tied hidden"])
@pytest.mark.parametrize("spec", [StaticOrder(widths=(8, 4, 2)), StaticOrder(branching=(3, 2, 2))])
def test_static_nodes_are_the_ranked_children(recordings, name, spec):
    recording = recordings[name]
    table = build_order(spec, recording)
    assert not table.nested
    shape = static_shape(spec, recording.depths)

    def reference(anchor):
        nodes = []
        for parent, rank, depth in shape.tolist():
            root = int(recording.anchor_tokens(np.array([anchor]))[0])
            token = root if parent < 0 else nodes[parent].token
            kid, logq = naive.children(recording, anchor, depth, token, "parent", 8)[rank]
            above = 0.0 if parent < 0 else nodes[parent].score
            nodes.append(naive.Node(above + logq, depth, parent, kid))
        return nodes

    check_rows(table, recording, reference, step=7)


def test_a_missing_child_leaves_out_its_subtree():
    # K = 2 of depth 2 has one token only: rank 1 does not exist there
    scores = BlockScores(
        np.array([[[0, 1], [2, 3], [4, 5]]]),
        np.array([[[-1.0, -2.0], [-1.0, -np.inf], [-1.0, -2.0]]]),
    )
    table = build_block(StaticOrder(branching=(1, 2, 2)), scores)
    assert table.size[0] == 4
    assert table.max_nodes == 7
    assert table.token[0].tolist() == [0, 2, 4, 5, -1, -1, -1]
    assert table.parent[0, :4].tolist() == [-1, 0, 1, 1]
    grown = build_block(BestFirstOrder(branch=2, depth_cap=2), scores)
    assert grown.token[0].tolist() == [0, 1, 2, 2, -1, -1]


def test_full_tree_bounds_the_table(recordings):
    table = build_order(BestFirstOrder(branch=2, depth_cap=3), recordings["pool"])
    assert table.max_nodes == 2 + 4 + 8
    assert (table.size == 14).all()


REFUSED = [
    ("pool", BestFirstOrder(branch=9), "branch: 9.* holds 8"),
    ("pool", BestFirstOrder(depth_cap=5), "depth_cap: 5.* holds 4"),
    ("pool", ChainOrder(5), "length: 5.* holds 4"),
    ("pool", StaticOrder(widths=(1, 1, 1, 1, 1)), "depths: 5.* holds 4"),
    ("pool", StaticOrder(branching=(9,)), "rank: 9.* holds 8"),
    ("pool", StaticOrder(branching=(2,), prefixes=(3,)), "prefixes: 3.* holds 2"),
    ("hidden", BestFirstOrder(branch=51), "branch: 51.* holds 50"),
    ("pool", "chain", "order: 'chain'"),
]


@pytest.mark.parametrize(("name", "spec", "message"), REFUSED)
def test_more_than_the_recording_holds_is_refused(recordings, name, spec, message):
    with pytest.raises(InputError, match=message):
        build_order(spec, recordings[name])


BAD_SPECS = [
    (ChainOrder, {"length": 0}, "length: 0"),
    (BestFirstOrder, {"scores": "joint"}, "scores: 'joint'"),
    (BestFirstOrder, {"ties": "rank"}, "ties: 'rank'"),
    (BestFirstOrder, {"nodes": 40000}, "nodes: 40000"),
    (BestFirstOrder, {"branch": 2.5}, "branch: 2.5"),
    (BestFirstOrder, {"platt": (-1.0, 0.0)}, "a > 0"),
    (BestFirstOrder, {"platt": (1.0,)}, "platt"),
    (BestFirstOrder, {"floor": 0.1}, "floor: 0.1"),
    (BestFirstOrder, {"floor": float("nan")}, "floor: nan"),
    (BestFirstOrder, {"floor": "low"}, "floor: 'low'"),
    (StaticOrder, {}, "exactly one"),
    (StaticOrder, {"widths": (2,), "branching": (2,)}, "exactly one"),
    (StaticOrder, {"widths": ()}, "no depths"),
    (StaticOrder, {"widths": (2, 0)}, "widths: 0"),
]


@pytest.mark.parametrize(("spec", "options", "message"), BAD_SPECS)
def test_bad_specs_are_refused(spec, options, message):
    with pytest.raises(InputError, match=message):
        spec(**options)


def test_specs_are_plain_hashable_data():
    assert StaticOrder(widths=[4, 2]) == StaticOrder(widths=(4, 2))
    assert len({BestFirstOrder(platt=[1, 0]), BestFirstOrder(platt=(1.0, 0.0))}) == 1


def test_tree_recordings_are_refused_by_name():
    with pytest.raises(InputError, match="'tree', orders accept pool and hidden"):
        build_order(ChainOrder(), make_tree(_rng(), sequences=2))


def test_only_takes_the_rows_of_some_anchors():
    recording = make_pool(np.random.default_rng(3))
    table = build_order(BestFirstOrder(nodes=6, branch=3), recording)
    kept = recording.anchors_of(split="tuning")
    taken = table.only(kept)
    assert taken.anchors.tolist() == list(range(len(kept)))
    for name in ARRAYS:
        assert np.array_equal(getattr(taken, name), getattr(table, name)[kept]), name
