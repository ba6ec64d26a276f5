"""Orders of every family against explicit trees, by hand, live and replayed; ties, limits."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.orders import (
    ABSENT,
    BestFirstOrder,
    BlockScores,
    ChainOrder,
    DraftHead,
    StaticOrder,
    build_block,
    build_order,
    order_table,
)
from simulator.orders.families.beam import BeamOrder
from simulator.orders.families.marginal import MarginalOrder
from simulator.orders.families.sampled import SampledOrder
from simulator.orders.families.scored_chain import ScoredChain
from simulator.orders.families.shaped import ShapeOrder
from simulator.orders.specs import static_shape
from simulator.orders.table import ARRAYS
from tests.reference_orders import check_live, check_rows
from tests.synthetic import make_pool, make_tree, order_recordings
from traces import InputError

PUBLISHED = (0.6684, -0.4587)  # TreeSpark's Platt constants, Qwen3-4B
ODD = ((-1, 0, -1, 0, 1, 2, 5), (1, 0, 0, 2, 1, 0, 0))  # rank 1 of the anchor before rank 0


@pytest.fixture(scope="module")
def recordings():
    rng = np.random.default_rng(9)
    half = make_pool(rng, lengths=[12] * 6, dtype="float16", pool=6, vocab=12, noise=0.1)
    tree = make_tree(np.random.default_rng(0), sequences=2)
    return order_recordings() | {"half pool": half, "tree": tree}


def marginal(nodes, **more) -> BestFirstOrder:
    return BestFirstOrder(nodes=nodes, scores="marginal", **more)


def biased(nodes, **more) -> BestFirstOrder:
    return BestFirstOrder(nodes=nodes, scores="marginal_biased", **more)


CASES = [
    ("pool", BestFirstOrder()),
    ("pool", BestFirstOrder(nodes=20, branch=3, depth_cap=3, ties="tick")),
    ("hidden", BestFirstOrder(nodes=40)),
    ("hidden", BestFirstOrder(nodes=40, ties="tick", platt=PUBLISHED)),
    ("hidden", marginal(24, branch=4)),
    ("hidden", biased(24, branch=4)),
    ("tied pool", BestFirstOrder(nodes=50, branch=5)),
    ("tied pool", BestFirstOrder(nodes=50, branch=5, ties="tick")),
    ("tied hidden", BestFirstOrder(nodes=40, branch=6)),
    ("tied hidden", BestFirstOrder(nodes=40, branch=6, ties="tick")),
    ("pool", ChainOrder()),
    ("hidden", ChainOrder()),
    ("hidden", ChainOrder(2)),
    ("pool", StaticOrder(widths=(8, 4, 2))),
    ("hidden", StaticOrder(branching=(3, 2, 2))),
    ("tied hidden", StaticOrder(widths=(8, 4, 2))),
    ("pool", MarginalOrder(40)),
    ("pool", MarginalOrder(15, depth_cap=2, branch=3)),
    ("half pool", MarginalOrder(400)),
    ("tied pool", MarginalOrder(50)),
    ("hidden", MarginalOrder(30)),
    ("hidden", MarginalOrder(30, scores="marginal_biased")),
    ("hidden", MarginalOrder(9, scores="marginal_biased", branch=2)),
    ("tied hidden", MarginalOrder(12)),
    ("pool", BeamOrder(3, 2, 10)),
    ("hidden", BeamOrder(4, 4, 15)),
    ("hidden", BeamOrder(10, 10, 59, depth_cap=3)),
    ("hidden", BeamOrder(3, 5, 12, scores="marginal_biased")),
    ("hidden", BeamOrder(3, 3, 12, scores="marginal")),
    ("hidden", BeamOrder(20, 20, 20, min_gain=0.5)),
    ("hidden", BeamOrder(6, 2, 200)),
    ("half pool", BeamOrder(4, 3, 20)),
    ("half pool", BeamOrder(5, 5, 5, min_gain=0.3)),
    ("tied pool", BeamOrder(4, 4, 40)),
    ("tied pool", BeamOrder(2, 9, 5)),
    ("pool", ShapeOrder(*ODD, prefixes=(3,))),
    ("hidden", ShapeOrder(*ODD, prefixes=(3,))),
    ("tied hidden", ShapeOrder(*ODD, prefixes=(3,))),
]


@pytest.mark.parametrize(("name", "spec"), CASES)
def test_replayed_and_live_orders_are_the_explicit_trees(recordings, name, spec):
    recording = recordings[name]
    table = build_order(spec, recording)
    check_rows(table, recording, spec, step=3)
    check_live(table, recording, spec)
    equal = (table.score[:, 1:] == table.score[:, :-1]) & np.isfinite(table.score[:, 1:])
    assert table.ties.tolist() == equal.sum(axis=1).tolist()
    exists = np.arange(table.max_nodes) < table.size[:, None]
    assert (np.isfinite(table.score) == exists).all()
    assert table.nested == spec.nested == (type(spec) not in (StaticOrder, ShapeOrder))
    if table.nested:
        assert table.widths_allowed() is None
        assert (table.score[:, 1:] <= table.score[:, :-1]).all()
    anchors = np.arange(len(table.anchors))
    for width in (0, 1, table.max_nodes):  # accepted(w) counts the path nodes in the prefix
        expected = (table.hit_rank <= width).sum(axis=1)
        assert (table.accepted(anchors, width) == expected).all()
        assert (table.accepted(anchors, np.full(len(anchors), width)) == expected).all()


def test_recordings_with_ties_have_them(recordings):
    for name, spec in (
        ("tied pool", BestFirstOrder(branch=5)),
        ("tied hidden", BestFirstOrder(branch=5)),
        ("half pool", MarginalOrder(400)),
    ):
        assert build_order(spec, recordings[name]).ties.sum() > 100
    assert build_order(ShapeOrder(*ODD, prefixes=(3,)), recordings["pool"]).widths_allowed() == (3,)


# ---------------------------------------------------------------- by hand


def block(token, logq, spec):
    return build_block(spec, BlockScores(np.array(token), np.array(logq)))


def test_the_shallower_of_two_equal_scores_comes_first():
    # A -1, B -2; below both C -1, D -3. AC ties with B at -2 and is deeper.
    table = block([[[0, 1], [2, 3]]], [[[-1.0, -2.0], [-1.0, -3.0]]], BestFirstOrder(branch=2))
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
    by_depth = block(token, logq, BestFirstOrder(branch=3, nodes=7))
    by_tick = block(token, logq, BestFirstOrder(branch=3, nodes=7, ties="tick"))
    assert by_depth.score[0].tolist() == [-0.5, -1, -1.5, -1.5, -2, -2.5, -2.5]
    assert by_depth.token[0].tolist() == [0, 2, 1, 5, 2, 4, 5]
    assert by_tick.token[0].tolist() == [0, 2, 1, 5, 2, 4, 7]


def test_ddtrees_equal_scores_go_to_the_smaller_tuple_of_ranks():
    # (0,) -1, (1,) -2, (0, 0) -2, (0, 1) -2, (0, 0, 0) -2: prefixes first, then rank by rank,
    # so (1,) is last although it is the shallowest. CAST's rule would take it second.
    logq = [[[-1.0, -2.0], [-1.0, -1.0], [0.0, -9.0]]]
    token = [[[0, 1], [2, 3], [4, 5]]]
    table = block(token, logq, MarginalOrder(8))
    assert table.token[0, :6].tolist() == [0, 2, 4, 3, 4, 1]
    assert table.parent[0, :6].tolist() == [-1, 0, 1, 0, 3, -1]
    by_depth = block(token, logq, BestFirstOrder(nodes=8, branch=2))
    assert by_depth.token[0, :2].tolist() == [0, 1]


def test_beam_by_hand():
    # Depth 1: a -1, b -2, c -3 (c is not in the frontier). Depth 2: d -1, e -1.5 below a and b.
    # Pool: a -1, b -2, c -3, ad -2, ae -2.5, bd -3, be -3.5; c is shallower than bd.
    logq = [[[-1.0, -2.0, -3.0], [-1.0, -1.5, -9.0]]]
    table = block([[[0, 1, 2], [3, 4, 5]]], logq, BeamOrder(branch=3, beam=2, nodes=7))
    assert table.token[0].tolist() == [0, 1, 3, 4, 2, 3, 4]
    assert table.parent[0].tolist() == [-1, -1, 0, 0, -1, 1, 1]
    assert table.score[0].tolist() == [-1, -2, -2, -2.5, -3, -3, -3.5]
    assert table.ties[0] == 2


def test_min_gain_ends_with_the_layer_that_gains_too_little():
    # Best two path products: .8 + .1, then .8 + .64, then .8 + .64 again at a gain of 0.
    logq, token = np.log([[[0.8, 0.1], [0.8, 0.1], [0.5, 0.1], [0.5, 0.1]]]), np.arange(8)
    for gain, depth in (
        (0.95, 1),
        (0.9 - 1e-9, 2),
        (0.54 + 1e-9, 2),
        (0.54 - 1e-9, 3),
        (0.0, 3),
        (None, 4),
    ):
        spec = BeamOrder(branch=2, beam=2, nodes=2**4, min_gain=gain)
        assert block(token.reshape(1, 4, 2), logq, spec).depth.max() == depth


def test_published_platt_values_along_a_path():
    # .9 -> .733 and .5 -> .387 (policies' published map), so a path of both survives .284
    spec = BestFirstOrder(branch=1, platt=PUBLISHED, ties="tick")
    table = block([[[3], [4]]], np.log([[[0.9], [0.5]]]), spec)
    np.testing.assert_allclose(np.exp(table.score[0]), [0.733, 0.733 * 0.387], atol=6e-4)
    sure = block([[[3]]], [[[0.0]]], spec)
    z = 0.6684 * np.log((1 - 1e-9) / 1e-9) - 0.4587  # q = 1 is clamped, not infinite
    assert np.exp(sure.score[0, 0]) == pytest.approx(1 / (1 + np.exp(-z)), rel=1e-12)


def test_static_widths_by_hand():
    shape = static_shape(StaticOrder(widths=(8, 4, 2, 2)), 7)
    # depth 2 takes rank sums 0, 1, 1, 2: children of nodes 0, 0, 1, 0; and so on
    below = [(0, 0), (0, 1), (1, 0), (0, 2), (8, 0), (8, 1), (12, 0), (12, 1)]
    tail = [(14, 0), (16, 0), (17, 0)]
    expected = [(-1, rank) for rank in range(8)] + below + tail
    assert [tuple(row[:2]) for row in shape.tolist()] == expected
    assert shape[:, 2].tolist() == [1] * 8 + [2] * 4 + [3, 3, 4, 4, 5, 6, 7]
    assert len(static_shape(StaticOrder(widths=(8, 4, 2, 2), tail_chain=False), 7)) == 16


def test_static_binary_tree_by_hand():
    shape = static_shape(StaticOrder(branching=(2, 2, 2, 2, 2)), 7)
    # heap numbering without its root: parent of node m is (m - 2) // 2
    assert shape[:, 0].tolist() == [-1, -1] + [(m - 2) // 2 for m in range(2, 62)]
    assert shape[:, 1].tolist() == [0, 1] * 31
    assert np.bincount(shape[:, 2]).tolist() == [0, 2, 4, 8, 16, 32]


def test_what_does_not_exist_leaves_no_gap():
    # K = 2 of depth 2 has one token only: rank 1 does not exist there
    token = [[[0, 1], [2, 3], [4, 5]]]
    logq = [[[-1.0, -2.0], [-1.0, -np.inf], [-1.0, -2.0]]]
    table = block(token, logq, StaticOrder(branching=(1, 2, 2)))
    assert (table.size[0], table.max_nodes) == (4, 7)
    assert table.token[0].tolist() == [0, 2, 4, 5, -1, -1, -1]
    assert table.parent[0, :4].tolist() == [-1, 0, 1, 1]
    # the same of depth 1, and what hangs below it
    token, logq = [[[5, 6], [7, 8]]], [[[-0.1, -np.inf], [-0.2, -0.3]]]
    table = block(token, logq, ShapeOrder((-1, -1, 0, 1), (1, 0, 0, 1)))
    assert table.token[0].tolist() == [5, 8, -1, -1]
    assert table.parent[0].tolist() == [-1, 0, -1, -1]
    for spec in (MarginalOrder(9), BeamOrder(2, 2, 9), BestFirstOrder(branch=2)):
        grown = block(token, logq, spec)
        assert grown.size.tolist() == [3]
        assert grown.token[0, :3].tolist() == [5, 7, 8]


def test_layers_know_banned_tokens_and_underflow():
    """A parent token's bias of -900 would underflow a product of exponentials."""
    logits = np.array([[[5.0, 1.0, 0.0, 3.0]]])
    w2 = np.array([[-900.0], [0.0], [0.0], [-900.0]])
    head = DraftHead(4, markov_w1=np.ones((4, 1)), markov_w2=w2, banned=[1, 2])
    scores = BlockScores(logits=logits, head=head, anchor_token=[0])
    table = build_block(BeamOrder(2, 2, 4), scores)
    assert table.token[0].tolist() == [0, 3]
    expected = np.log([1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(2.0))])
    np.testing.assert_allclose(table.score[0], expected, rtol=0, atol=1e-12)
    with pytest.raises(InputError, match="holds 2 ranks"):
        build_block(ShapeOrder((-1,), (2,)), scores)


# ---------------------------------------------------------------- what goes together


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


def test_what_there_is_bounds_the_table(recordings):
    table = build_order(BestFirstOrder(branch=2, depth_cap=3), recordings["pool"])
    assert set(table.size.tolist()) == {table.max_nodes} == {2 + 4 + 8}
    five = recordings["tied pool"]  # ranks, of 3 depths: 5 + 25 + 125 nodes
    spec = MarginalOrder(100).resolved(five)
    assert (spec.branch, spec.nodes) == (5, 100)
    assert set(build_order(MarginalOrder(1000), five).size.tolist()) == {155}


def test_tables_are_cached_by_what_the_spec_comes_to(recordings, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path))
    recording = recordings["tied pool"]
    for spec in (BeamOrder(9, 3, 10), BeamOrder(5, 3, 10), MarginalOrder(1000), MarginalOrder(155)):
        order_table(spec, recording)
    assert len(list(tmp_path.rglob("*.npz"))) == 2


def test_specs_are_plain_hashable_data():
    assert StaticOrder(widths=[4, 2]) == StaticOrder(widths=(4, 2))
    assert len({BestFirstOrder(platt=[1, 0]), BestFirstOrder(platt=(1.0, 0.0))}) == 1


def test_only_takes_the_rows_of_some_anchors():
    recording = make_pool(np.random.default_rng(3))
    table = build_order(BestFirstOrder(nodes=6, branch=3), recording)
    kept = recording.anchors_of(split="tuning")
    taken = table.only(kept)
    assert taken.anchors.tolist() == list(range(len(kept)))
    for name in ARRAYS:
        assert np.array_equal(getattr(taken, name), getattr(table, name)[kept]), name


# ---------------------------------------------------------------- refusals

REFUSED = [
    ("pool", BestFirstOrder(branch=9), "branch: 9.* holds 8"),
    ("pool", BestFirstOrder(depth_cap=5), "depth_cap: 5.* holds 4"),
    ("pool", ChainOrder(5), "length: 5.* holds 4"),
    ("pool", StaticOrder(widths=(1, 1, 1, 1, 1)), "depths: 5.* holds 4"),
    ("pool", StaticOrder(branching=(9,)), "rank: 9.* holds 8"),
    ("pool", StaticOrder(branching=(2,), prefixes=(3,)), "prefixes: 3.* holds 2"),
    ("hidden", BestFirstOrder(branch=51), "branch: 51.* holds 50"),
    ("hidden", MarginalOrder(5, depth_cap=9), "synthetic hidden holds"),
    ("hidden", BeamOrder(2, 2, 2, depth_cap=9), "synthetic hidden holds"),
    ("hidden", ShapeOrder((-1,), (60,)), "synthetic hidden holds"),
    ("pool", "chain", "order: 'chain'"),
    ("tree", ChainOrder(), "'tree', orders accept pool and hidden"),
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
    (MarginalOrder, {"nodes": 0}, "MarginalOrder nodes: 0"),
    (MarginalOrder, {"scores": "parent"}, "MarginalOrder scores: 'parent'"),
    (BeamOrder, {"branch": 0, "beam": 1, "nodes": 1}, "BeamOrder branch: 0"),
    (BeamOrder, {"branch": 1, "beam": 1, "nodes": 1, "min_gain": -1}, "min_gain: -1"),
    (ShapeOrder, {"parents": (), "ranks": ()}, "ShapeOrder: 0 parents"),
    (ShapeOrder, {"parents": (-1,), "ranks": (0, 1)}, "1 parents and 2 ranks"),
    (ShapeOrder, {"parents": (0,), "ranks": (0,)}, "one before its parent"),
    (ShapeOrder, {"parents": (-1, -1), "ranks": (0, 0)}, "two nodes of one parent and rank"),
    (ShapeOrder, {"parents": (-1,), "ranks": (0,), "prefixes": (2,)}, "prefixes: 2"),
    (ShapeOrder, {"parents": "ab", "ranks": (0,)}, "parents: 'ab', accepted: a list"),
    (ScoredChain, {"evidence": "hope"}, "evidence: 'hope', accepted: confidence, margin, q"),
    (ScoredChain, {"maps": ((1.0, float("nan")),)}, r"maps: \(1.0, nan\), accepted: a finite pair"),
    (ScoredChain, {"maps": ((1.0,),)}, r"maps: \(1.0,\), accepted"),
    (ScoredChain, {"maps": (3,)}, "maps: 3, accepted"),
    (SampledOrder, {"nodes": 0}, "SampledOrder nodes"),
    (SampledOrder, {"branch": True}, "SampledOrder branch"),
    (SampledOrder, {"depth_cap": 1.5}, "SampledOrder depth_cap"),
    (SampledOrder, {"platt": (0.0, 1.0)}, "SampledOrder platt"),
    (SampledOrder, {"platt": 3}, "SampledOrder platt"),
    (SampledOrder, {"confidence": (1.0,)}, "SampledOrder confidence"),  # a tree
    (SampledOrder, {"branch": 1, "confidence": (1.0, 0.0)}, "SampledOrder confidence"),
    (SampledOrder, {"branch": 1, "confidence": ()}, "SampledOrder confidence"),
    (SampledOrder, {"temperature": 0.0}, "SampledOrder temperature"),
    (SampledOrder, {"temperature": float("inf")}, "SampledOrder temperature"),
    (SampledOrder, {"floor": 0.1}, "SampledOrder floor"),
]


@pytest.mark.parametrize(("spec", "options", "message"), BAD_SPECS)
def test_bad_specs_are_refused(spec, options, message):
    with pytest.raises(InputError, match=message):
        spec(**options)
