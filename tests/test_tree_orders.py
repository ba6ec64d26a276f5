"""DDTree's heap, beams and static shapes against slow references, by hand, live and replayed."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.orders import (
    BestFirstOrder,
    BlockScores,
    DraftHead,
    StaticOrder,
    build_block,
    build_order,
    order_table,
)
from simulator.orders import scores as block_module
from simulator.orders.families.beam import BeamOrder
from simulator.orders.families.marginal import MarginalOrder
from simulator.orders.families.shaped import ShapeOrder
from simulator.orders.shape import static_shape
from tests import naive_trees as naive
from tests.order_recordings import order_recordings
from tests.synthetic import make_pool
from traces import InputError

ODD = ((-1, 0, -1, 0, 1, 2, 5), (1, 0, 0, 2, 1, 0, 0))  # rank 1 of the anchor before rank 0


@pytest.fixture(scope="module")
def recordings():
    rng = np.random.default_rng(9)
    half = make_pool(rng, lengths=[12] * 6, dtype="float16", pool=6, vocab=12, noise=0.1)
    return order_recordings() | {"half pool": half}


def _blocks(recording, anchors):
    """The anchors as live blocks: a pool, or hidden states and logits of both types."""
    if recording.encoding == "pool":
        yield BlockScores(recording["pool_token"][anchors], recording["pool_logprob"][anchors])
        return
    head, token = DraftHead.of(recording), recording.anchor_tokens(anchors)
    hidden = recording["hidden"][anchors]
    yield BlockScores(hidden=hidden, head=head, anchor_token=token)
    yield BlockScores(logits=head.logits(hidden), head=head, anchor_token=token)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pool", {"nodes": 40}),
        ("pool", {"nodes": 15, "depth_cap": 2, "branch": 3}),
        ("half pool", {"nodes": 400}),
        ("tied pool", {"nodes": 50}),
        ("hidden", {"nodes": 30}),
        ("hidden", {"nodes": 30, "scores": "marginal_biased"}),
        ("hidden", {"nodes": 9, "scores": "marginal_biased", "branch": 2}),
        ("tied hidden", {"nodes": 12}),
    ],
)
def test_marginal_order_is_the_python_heap(recordings, name, options):
    recording = recordings[name]
    table = build_order(MarginalOrder(**options), recording)
    given = {"nodes": options["nodes"], "branch": options.get("branch")}
    given |= {"cap": options.get("depth_cap"), "kind": options.get("scores", "marginal")}
    naive.check_rows(table, recording, lambda a: naive.ddtree(recording, a, **given), step=3)
    naive.check_live(MarginalOrder(**options), recording, table, build_block, _blocks)


def test_float16_pools_do_tie(recordings):
    assert build_order(MarginalOrder(400), recordings["half pool"]).ties.sum() > 100


def test_equal_scores_go_to_the_smaller_tuple_of_ranks():
    # (0,) -1, (1,) -2, (0, 0) -2, (0, 1) -2, (0, 0, 0) -2: prefixes first, then rank by rank,
    # so (1,) is last although it is the shallowest. CAST's rule would take it second.
    logq = np.array([[[-1.0, -2.0], [-1.0, -1.0], [0.0, -9.0]]])
    token = np.array([[[0, 1], [2, 3], [4, 5]]])
    table = build_block(MarginalOrder(8), BlockScores(token, logq))
    assert table.token[0, :6].tolist() == [0, 2, 4, 3, 4, 1]
    assert table.parent[0, :6].tolist() == [-1, 0, 1, 0, 3, -1]
    by_depth = build_block(BestFirstOrder(nodes=8, branch=2), BlockScores(token, logq))
    assert by_depth.token[0, :2].tolist() == [0, 1]


@pytest.mark.parametrize(("name", "scores"), [("pool", "marginal"), ("hidden", "marginal_biased")])
def test_without_ties_it_is_best_first_over_the_same_lists(recordings, name, scores):
    recording = recordings[name]
    table = build_order(MarginalOrder(8, scores=scores), recording)
    other = build_order(BestFirstOrder(scores=scores, nodes=8, branch=8), recording)
    assert not (table.ties + other.ties).any()
    for column in ("token", "parent", "depth", "hit_rank"):
        assert (getattr(table, column) == getattr(other, column)).all()
    np.testing.assert_allclose(table.score, other.score, rtol=0, atol=1e-9)


def test_rank_cap_is_the_pool_where_it_is_smaller(recordings):
    spec = MarginalOrder(100).resolved(recordings["tied pool"])
    assert (spec.branch, spec.nodes) == (5, 100)  # 5 + 25 + 125 nodes exist
    assert MarginalOrder(1000).resolved(recordings["tied pool"]).nodes == 155
    table = build_order(MarginalOrder(1000), recordings["tied pool"])
    assert (table.size == 155).all()


BEAMS = [
    ("pool", {"branch": 3, "beam": 2, "nodes": 10}),
    ("hidden", {"branch": 4, "beam": 4, "nodes": 15}),
    ("hidden", {"branch": 10, "beam": 10, "nodes": 59, "depth_cap": 3}),
    ("hidden", {"branch": 3, "beam": 5, "nodes": 12, "scores": "marginal_biased"}),
    ("hidden", {"branch": 3, "beam": 3, "nodes": 12, "scores": "marginal"}),
    ("hidden", {"branch": 20, "beam": 20, "nodes": 20, "min_gain": 0.5}),
    ("hidden", {"branch": 6, "beam": 2, "nodes": 200}),
    ("half pool", {"branch": 4, "beam": 3, "nodes": 20}),
    ("half pool", {"branch": 5, "beam": 5, "nodes": 5, "min_gain": 0.3}),
    ("tied pool", {"branch": 4, "beam": 4, "nodes": 40}),
    ("tied pool", {"branch": 2, "beam": 9, "nodes": 5}),
]


@pytest.mark.parametrize(("name", "options"), BEAMS)
def test_beam_is_the_sorted_pool(recordings, name, options):
    recording = recordings[name]
    table = build_order(BeamOrder(**options), recording)
    given = {"cap" if k == "depth_cap" else k: v for k, v in options.items() if k != "scores"}
    pooled = recording.encoding == "pool"
    given["kind"] = options.get("scores", "marginal" if pooled else "parent")
    naive.check_rows(table, recording, lambda a: naive.beam(recording, a, **given), step=3)
    naive.check_live(BeamOrder(**options), recording, table, build_block, _blocks)


def test_beam_by_hand():
    # Depth 1: a -1, b -2, c -3 (c is not in the frontier). Depth 2: d -1, e -1.5 below a and b.
    # Pool: a -1, b -2, c -3, ad -2, ae -2.5, bd -3, be -3.5; c is shallower than bd.
    token = np.array([[[0, 1, 2], [3, 4, 5]]])
    logq = np.array([[[-1.0, -2.0, -3.0], [-1.0, -1.5, -9.0]]])
    table = build_block(BeamOrder(branch=3, beam=2, nodes=7), BlockScores(token, logq))
    assert table.token[0].tolist() == [0, 1, 3, 4, 2, 3, 4]
    assert table.parent[0].tolist() == [-1, -1, 0, 0, -1, 1, 1]
    assert table.score[0].tolist() == [-1, -2, -2, -2.5, -3, -3, -3.5]
    assert table.ties[0] == 2


def test_min_gain_ends_with_the_layer_that_gains_too_little():
    # Best two path products: .8 + .1, then .8 + .64, then .8 + .64 again at a gain of 0.
    logq = np.log(np.array([[[0.8, 0.1], [0.8, 0.1], [0.5, 0.1], [0.5, 0.1]]]))
    token = np.arange(8).reshape(1, 4, 2)

    def depth(min_gain):
        spec = BeamOrder(branch=2, beam=2, nodes=2**4, min_gain=min_gain)
        return int(build_block(spec, BlockScores(token, logq)).depth.max())

    assert [depth(gain) for gain in (0.95, 0.9 - 1e-9, 0.54 + 1e-9, 0.54 - 1e-9, 0.0)] == [
        1,
        2,
        2,
        3,
        3,
    ]
    assert depth(None) == 4


@pytest.mark.parametrize("spec", [MarginalOrder(25), BeamOrder(5, 4, 30), BeamOrder(8, 8, 8)])
@pytest.mark.parametrize("name", ["pool", "half pool", "tied pool", "tied hidden"])
def test_prefixes_are_closed_and_scores_fall(recordings, name, spec):
    table = build_order(spec, recordings[name])
    assert table.nested
    assert table.widths_allowed() is None
    assert (table.parent < np.arange(table.max_nodes)).all()
    assert (table.score[:, 1:] <= table.score[:, :-1]).all()
    exists = np.arange(table.max_nodes) < table.size[:, None]
    assert (np.isfinite(table.score) == exists).all()


def test_shape_is_the_listed_tree(recordings):
    for name in ("pool", "hidden", "tied hidden"):
        recording = recordings[name]
        spec = ShapeOrder(*ODD, prefixes=(3,))
        table = build_order(spec, recording)
        assert not table.nested
        assert table.widths_allowed() == (3,)
        kind = "marginal" if name == "pool" else "parent"
        given = (*ODD, kind)
        naive.check_rows(table, recording, lambda a, g=given, r=recording: naive.shape(r, a, *g))
        naive.check_live(spec, recording, table, build_block, _blocks)


@pytest.mark.parametrize("name", ["pool", "hidden"])
def test_shape_of_a_static_order_is_that_order(recordings, name):
    static = StaticOrder(widths=(4, 3, 2))
    shape = static_shape(static, recordings[name].depths)
    table = build_order(ShapeOrder(shape[:, 0], shape[:, 1]), recordings[name])
    other = build_order(static, recordings[name])
    for column in ("token", "parent", "depth", "hit_rank", "size", "ties"):
        assert (getattr(table, column) == getattr(other, column)).all()


def test_children_that_do_not_exist_leave_no_gap():
    # token 1 is the only one below the anchor: rank 1 and what hangs below it are not there
    head = DraftHead(3, banned=[0, 2])
    block = BlockScores(logits=np.zeros((1, 2, 3)), head=head, anchor_token=[1])
    with pytest.raises(InputError, match="holds 1 ranks"):
        build_block(ShapeOrder((-1, -1, 0), (1, 0, 0)), block)
    logq = np.array([[[-0.1, -np.inf], [-0.2, -0.3]]])
    pool = BlockScores(np.array([[[5, 6], [7, 8]]]), logq)
    table = build_block(ShapeOrder((-1, -1, 0, 1), (1, 0, 0, 1)), pool)
    assert table.size.tolist() == [2]
    assert table.token[0].tolist() == [5, 8, -1, -1]
    assert table.parent[0].tolist() == [-1, 0, -1, -1]
    marginal = build_block(MarginalOrder(9), pool)
    assert marginal.token[0, :3].tolist() == [5, 7, 8]
    assert marginal.size.tolist() == [3]
    beam = build_block(BeamOrder(2, 2, 9), pool)
    assert beam.token[0, :3].tolist() == [5, 7, 8]
    assert beam.size.tolist() == [3]


def test_banned_tokens_and_underflow():
    """A parent token's bias of -900 would underflow a product of exponentials."""
    logits = np.array([[[5.0, 1.0, 0.0, 3.0]]])
    w2 = np.array([[-900.0], [0.0], [0.0], [-900.0]])
    head = DraftHead(4, markov_w1=np.ones((4, 1)), markov_w2=w2, banned=[1, 2])
    block = BlockScores(logits=logits, head=head, anchor_token=[0])
    table = build_block(BeamOrder(2, 2, 4), block)
    assert table.token[0].tolist() == [0, 3]
    expected = np.log([1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(2.0))])
    np.testing.assert_allclose(table.score[0], expected, rtol=0, atol=1e-12)


def test_few_bias_rows_give_the_same_order(recordings, monkeypatch):
    recording, spec = recordings["hidden"], BeamOrder(5, 5, 30)
    table = build_order(spec, recording)
    monkeypatch.setattr(block_module, "ROW_BYTES", 2 * 16 * recording.vocab_size)  # two rows
    again = build_order(spec, recording)
    assert (again.token == table.token).all()
    assert (again.score == table.score).all()


def test_tables_are_cached_by_what_the_spec_comes_to(recordings, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path))
    recording = recordings["tied pool"]
    order_table(BeamOrder(9, 3, 10), recording)
    order_table(BeamOrder(5, 3, 10), recording)  # the pool has five ranks
    order_table(MarginalOrder(1000), recording)
    order_table(MarginalOrder(155), recording)
    assert len(list(tmp_path.glob("*.npz"))) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MarginalOrder(0), "MarginalOrder nodes: 0"),
        (lambda: MarginalOrder(5, scores="parent"), "MarginalOrder scores: 'parent'"),
        (lambda: BeamOrder(0, 1, 1), "BeamOrder branch: 0"),
        (lambda: BeamOrder(1, 1, 1, min_gain=-1), "BeamOrder min_gain: -1"),
        (lambda: BeamOrder(1, 1, 1, scores="own"), "BeamOrder scores: 'own'"),
        (lambda: ShapeOrder((), ()), "ShapeOrder: 0 parents"),
        (lambda: ShapeOrder((-1,), (0, 1)), "1 parents and 2 ranks"),
        (lambda: ShapeOrder((0,), (0,)), "node 0: parent 0"),
        (lambda: ShapeOrder((-1, -1), (0, 0)), "same parent and rank"),
        (lambda: ShapeOrder((-1,), (0,), prefixes=(2,)), "prefixes: 2"),
        (lambda: ShapeOrder("ab", (0,)), "parents: accepted: a list"),
    ],
)
def test_specs_are_checked(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    "spec",
    [MarginalOrder(5, depth_cap=9), BeamOrder(2, 2, 2, depth_cap=9), ShapeOrder((-1,), (60,))],
)
def test_what_the_recording_lacks_is_refused(recordings, spec):
    with pytest.raises(InputError, match="synthetic hidden holds"):
        build_order(spec, recordings["hidden"])
