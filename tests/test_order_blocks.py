"""Live blocks get the replayed order; the head's bias rows, bans and normaliser."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from simulator.orders import (
    ABSENT,
    BestFirstOrder,
    BlockScores,
    ChainOrder,
    DraftHead,
    build_block,
    build_order,
    cache,
)
from simulator.orders import scores as block_module
from tests import naive_orders as naive
from tests.order_recordings import order_recordings
from tests.synthetic import make_hidden
from traces import InputError


@pytest.fixture(scope="module")
def recordings():
    return order_recordings()


LIVE = [BestFirstOrder(nodes=30), BestFirstOrder(scores="marginal_biased"), ChainOrder()]


@pytest.mark.parametrize("spec", LIVE)
def test_live_blocks_get_the_replayed_order(recordings, spec):
    recording = recordings["hidden"]
    table = build_order(spec, recording)
    head = DraftHead.of(recording)
    anchors = np.array([40, 3, 17])
    common = {"head": head, "anchor_token": recording.anchor_tokens(anchors)}
    hidden = recording["hidden"][anchors]
    logits = hidden.astype(np.float64) @ recording["head"].astype(np.float64).T
    for scores in ({"hidden": hidden}, {"logits": logits}):
        live = build_block(spec, BlockScores(**scores, **common), recording.realised(anchors))
        for name in ("token", "parent", "depth", "size", "hit_rank"):
            assert (getattr(live, name) == getattr(table, name)[anchors]).all()
        np.testing.assert_allclose(live.score, table.score[anchors], rtol=0, atol=1e-9)
    one = build_block(spec, BlockScores(hidden=hidden[:1], head=head, anchor_token=[0]))
    assert (one.hit_rank == ABSENT).all()  # nothing realised yet


def test_live_pools_get_the_replayed_order(recordings):
    recording, anchors = recordings["pool"], np.array([9, 0])
    table = build_order(BestFirstOrder(), recording)
    scores = BlockScores(recording["pool_token"][anchors], recording["pool_logprob"][anchors])
    live = build_block(BestFirstOrder(), scores, recording.realised(anchors))
    for name in cache.ARRAYS:
        assert (getattr(live, name) == getattr(table, name)[anchors]).all()


def test_incomplete_blocks_are_refused():
    logits = np.zeros((1, 2, 4))
    for options in ({}, {"logits": logits}, {"pool_token": np.zeros((1, 2, 4), int)}):
        with pytest.raises(InputError, match="BlockScores"):
            BlockScores(**options)
    with pytest.raises(InputError, match="no head"):
        DraftHead(4).logits(np.zeros((1, 2, 3)))


def test_few_bias_rows_give_the_same_order(recordings, monkeypatch):
    recording = recordings["hidden"]
    table = build_order(BestFirstOrder(), recording)
    monkeypatch.setattr(block_module, "ROW_BYTES", 2 * 16 * recording.vocab_size)  # two rows
    again = build_order(BestFirstOrder(), recording)
    assert (again.token == table.token).all()
    assert (again.score == table.score).all()


def test_banned_tokens_are_never_drafted(recordings):
    recording = recordings["hidden"]
    head = DraftHead(
        50, recording["head"], recording["markov_w1"], recording["markov_w2"], banned=[4, 8]
    )
    scores = BlockScores(hidden=recording["hidden"][:20], head=head, anchor_token=np.zeros(20))
    table = build_block(BestFirstOrder(branch=48, depth_cap=1), scores)
    assert (table.size == 48).all()
    assert not np.isin(table.token, (4, 8)).any()
    np.testing.assert_allclose(np.exp(table.score).sum(axis=1), 1, atol=1e-12)


def test_normaliser_survives_underflow():
    # logits (0, -600) and bias (-600, 0): every product of shifted exponentials is below 1e-250
    head = DraftHead(2, markov_w1=[[1.0], [0.0]], markov_w2=[[-600.0], [0.0]])
    scores = BlockScores(logits=np.array([[[0.0, -600.0]]]), head=head, anchor_token=[0])
    table = build_block(BestFirstOrder(branch=2), scores)
    np.testing.assert_allclose(np.exp(table.score[0]), [0.5, 0.5], atol=1e-12)
    assert table.token[0].tolist() == [0, 1]
    assert table.ties[0] == 1


def test_logits_may_be_float32_and_are_left_alone(recordings):
    recording, anchors = recordings["hidden"], np.arange(9)
    head = DraftHead(
        50, None, recording["markov_w1"], recording["markov_w2"], banned=recording["tokens"][:1]
    )
    logits = DraftHead.of(recording).logits(recording["hidden"][anchors]).astype(np.float32)
    kept, anchor_token = logits.copy(), recording.anchor_tokens(anchors)
    single, double = (
        build_block(BestFirstOrder(), BlockScores(logits=x, head=head, anchor_token=anchor_token))
        for x in (logits, logits.astype(np.float64))
    )
    assert (logits == kept).all()
    for name in cache.ARRAYS:
        assert (getattr(single, name) == getattr(double, name)).all()


def test_work_space_does_not_leak_between_blocks(recordings):
    """Blocks of other sizes and depths in between; earlier tables stay as they were."""
    recording = recordings["hidden"]
    head = DraftHead.of(recording)
    logits = head.logits(recording["hidden"])

    def block(anchors, depths):
        tokens = recording.anchor_tokens(anchors)
        return BlockScores(logits=logits[anchors, :depths], head=head, anchor_token=tokens)

    spec, some = BestFirstOrder(nodes=25), np.array([7, 30, 2])
    first = build_block(spec, block(some, 3))
    before = first.score.copy(), first.token.copy()
    for anchors, depths in ((np.arange(40), 2), (np.array([5]), 3), (some[::-1], 1)):
        build_block(spec, block(anchors, depths))
    assert (first.score == before[0]).all()
    assert (first.token == before[1]).all()
    again = build_block(spec, block(some, 3))
    for name in cache.ARRAYS:
        assert (getattr(again, name) == getattr(first, name)).all()


@pytest.mark.parametrize("rows", [3, 400])
def test_bias_rows_filled_ahead_give_the_same_order(wide, monkeypatch, rows):
    """With room for all rows, and with rows that must give way to others."""
    anchors = np.arange(0, wide.num_anchors, 4)
    logits = DraftHead.of(wide).logits(wide["hidden"][anchors])
    tables = []
    for ahead in (False, True):
        monkeypatch.setattr(block_module, "ROW_BYTES", rows * 16 * wide.vocab_size)
        head = DraftHead.of(wide)
        if ahead:
            head.fill()
        scores = BlockScores(logits=logits, head=head, anchor_token=wide.anchor_tokens(anchors))
        tables.append(build_block(BestFirstOrder(), scores))
    assert (tables[0].token == tables[1].token).all()
    assert (tables[0].score == tables[1].score).all()


@pytest.fixture(scope="module")
def wide():
    """A vocabulary of one whole segment and a part of one."""
    return make_hidden(np.random.default_rng(6), depths=3, vocab=400, lengths=[12] * 6)


@pytest.mark.parametrize("branch", [1, 8, 9, 60])
def test_wide_vocabularies_get_the_explicit_heap(wide, branch):
    """Every way to bound the best products: by lane, by block, and not at all."""
    anchors = np.arange(0, wide.num_anchors, 7)
    spec = BestFirstOrder(nodes=40, branch=branch, depth_cap=2)
    head = DraftHead.of(wide)
    hidden, anchor_token = wide["hidden"][anchors], wide.anchor_tokens(anchors)
    table = build_block(spec, BlockScores(hidden=hidden, head=head, anchor_token=anchor_token))
    for row, anchor in enumerate(anchors):
        nodes = naive.best_first(wide, int(anchor), nodes=40, branch=branch, cap=2)
        assert table.size[row] == len(nodes)
        for name in ("token", "parent", "depth"):
            expected = [getattr(node, name) for node in nodes]
            assert getattr(table, name)[row, : len(nodes)].tolist() == expected
        np.testing.assert_allclose(
            table.score[row, : len(nodes)], [n.score for n in nodes], rtol=0, atol=1e-9
        )


def test_equal_products_go_to_the_smaller_token():
    """300 equal logits, whose order a scan by lanes would change."""
    head = DraftHead(300, markov_w1=np.zeros((300, 1)), markov_w2=np.zeros((300, 1)))
    logits = np.zeros((1, 1, 300))
    logits[0, 0, [299, 20, 4]] = 1.0
    table = build_block(
        BestFirstOrder(branch=8, nodes=8), BlockScores(logits=logits, head=head, anchor_token=[0])
    )
    assert table.token[0].tolist() == [4, 20, 299, 0, 1, 2, 3, 5]
    assert table.ties[0] == 6


def test_pools_that_rise_are_refused():
    scores = BlockScores(np.array([[[0, 1]]]), np.array([[[-2.0, -1.0]]]))
    with pytest.raises(InputError, match="pool_logprob: rises"):
        build_block(BestFirstOrder(branch=2), scores)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scores", ["parent", "marginal", "marginal_biased"])
def test_a_banned_token_may_have_the_largest_logit(dtype, scores):
    """Tokens 0 and 2 remain: 3/4 and 1/4 at depth 1, 1/5 and 4/5 at depth 2."""
    head = DraftHead(3, markov_w1=np.zeros((3, 1)), markov_w2=np.zeros((3, 1)), banned=[1])
    logits = np.array([[[np.log(3.0), 40.0, 0.0], [0.0, 9.0, np.log(4.0)]]], dtype)
    given = BlockScores(logits=logits, head=head, anchor_token=[0])
    table = build_block(BestFirstOrder(branch=2, nodes=9, scores=scores), given)
    assert table.size[0] == 6
    assert table.token[0, :6].tolist() == [0, 2, 2, 2, 0, 0]
    expected = np.array([15, 12, 5, 4, 3, 1]) / 20
    np.testing.assert_allclose(np.exp(table.score[0, :6]), expected, atol=1e-7)


def test_read_only_and_strided_logits_are_accepted(recordings):
    recording = recordings["hidden"]
    head = DraftHead.of(recording)
    logits, tokens = head.logits(recording["hidden"][:8]), recording.anchor_tokens(np.arange(8))
    fixed = logits.copy()
    fixed.flags.writeable = False
    tables = [
        build_block(BestFirstOrder(), BlockScores(logits=x, head=head, anchor_token=tokens))
        for x in (logits, fixed, np.asfortranarray(logits))
    ]
    for table in tables[1:]:
        assert (table.token == tables[0].token).all()
        assert (table.score == tables[0].score).all()


def _same(one, other) -> None:
    for name in ("score", "depth", "parent", "token", "size", "hit_rank", "ties"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


def _live(recording, head, anchors) -> BlockScores:
    hidden, tokens = recording["hidden"][anchors], recording.anchor_tokens(anchors)
    return BlockScores(hidden=hidden, head=head, anchor_token=tokens)


def test_orders_and_batches_may_alternate_on_one_head(recordings):
    recording = recordings["hidden"]
    head = DraftHead.of(recording)
    specs = [BestFirstOrder(nodes=count) for count in range(1, 12)]  # more than are kept
    for anchors in (np.array([4]), np.array([3, 9, 17]), np.zeros(0, np.int64), np.array([4])):
        for spec in specs:
            table = build_block(spec, _live(recording, head, anchors))
            fresh = build_block(spec, _live(recording, DraftHead.of(recording), anchors))
            assert table.token.shape == (len(anchors), spec.nodes)
            assert table.hit_rank.shape == (len(anchors), recording.depths)
            _same(table, fresh)


def test_tables_of_live_blocks_are_their_own_and_read_only(recordings):
    recording = recordings["hidden"]
    head, spec = DraftHead.of(recording), BestFirstOrder(nodes=20)
    first = build_block(spec, _live(recording, head, np.array([4])))
    kept = first.token.copy()
    build_block(spec, _live(recording, head, np.array([11])))
    np.testing.assert_array_equal(first.token, kept)
    for name in ("anchors", "score", "depth", "parent", "token", "size", "hit_rank", "ties"):
        array = getattr(first, name)
        assert array.flags.c_contiguous
        assert array.flags.aligned
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_copied_head_has_work_space_of_its_own(recordings):
    recording = recordings["hidden"]
    head, spec, anchors = DraftHead.of(recording), BestFirstOrder(nodes=20), np.array([4, 8])
    table = build_block(spec, _live(recording, head, anchors))
    other = copy.deepcopy(head)
    _same(table, build_block(spec, _live(recording, other, anchors)))
    assert not np.shares_memory(head.kept().rows, other.kept().rows)
    ((_, mine),), ((_, theirs),) = head.work.values(), other.work.values()
    assert not np.shares_memory(mine.node, theirs.node)


def test_factors_may_lie_in_either_order(recordings):
    recording = recordings["hidden"]
    factors = [np.asfortranarray(recording[name]) for name in ("markov_w1", "markov_w2")]
    common = (recording.vocab_size, recording["head"])
    heads = [DraftHead(*common, *factors, recording.banned_tokens), DraftHead.of(recording)]
    anchors = np.array([4, 8])
    _same(*(build_block(LIVE[0], _live(recording, head, anchors)) for head in heads))


def test_pools_may_be_ordered_in_many_threads(recordings):
    recording, spec = recordings["pool"], BestFirstOrder(nodes=40)

    def build(anchor: int):
        rows = np.full(64, anchor)
        pools = (recording["pool_token"][rows], recording["pool_logprob"][rows])
        return build_block(spec, BlockScores(*pools))

    alone = [build(anchor) for anchor in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for one, other in zip(alone, pool.map(build, range(8)), strict=True):
                _same(one, other)
