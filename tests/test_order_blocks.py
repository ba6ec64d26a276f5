"""Blocks of one head: bias rows, bans, the normaliser, and work space that is kept."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from simulator.orders import (
    BestFirstOrder,
    BlockScores,
    ChainOrder,
    DraftHead,
    build_block,
    build_order,
    cache,
)
from simulator.orders import scores as block_module
from simulator.orders.families.beam import BeamOrder
from tests.reference_orders import check_rows
from tests.synthetic import make_hidden, order_recordings


@pytest.fixture(scope="module")
def recordings():
    return order_recordings()


@pytest.fixture(scope="module")
def recording(recordings):
    return recordings["hidden"]


@pytest.fixture(scope="module")
def wide():
    """A vocabulary of whole runs of tokens and a part of one."""
    return make_hidden(np.random.default_rng(6), depths=3, vocab=400, lengths=[12] * 6)


def live(recording, head, anchors, **scores) -> BlockScores:
    """The blocks at some anchors, of their hidden states or of other scores of these."""
    scores = scores or {"hidden": recording["hidden"][anchors]}
    return BlockScores(**scores, head=head, anchor_token=recording.anchor_tokens(anchors))


def same(one, *others) -> None:
    for other in others:
        for name in cache.ARRAYS:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


def plain_head(vocab: int, banned=()) -> DraftHead:
    return DraftHead(
        vocab, markov_w1=np.zeros((vocab, 1)), markov_w2=np.zeros((vocab, 1)), banned=banned
    )


@pytest.mark.parametrize("rows", [2, 3, 400])
@pytest.mark.parametrize("spec", [BestFirstOrder(), BeamOrder(5, 5, 30)])
def test_kept_bias_rows_change_nothing(wide, monkeypatch, rows, spec):
    """Filled ahead or as they are asked for, with room for all or where they must give way."""
    anchors = np.arange(0, wide.num_anchors, 4)
    heads = [DraftHead.of(wide) for _ in range(3)]
    first = build_block(spec, live(wide, heads[0], anchors))
    monkeypatch.setattr(block_module, "ROW_BYTES", rows * 16 * wide.vocab_size)
    heads[1].fill()
    same(first, *(build_block(spec, live(wide, head, anchors)) for head in heads[1:]))


@pytest.mark.parametrize("branch", [1, 8, 9, 60])
def test_wide_vocabularies_get_the_explicit_heap(wide, branch):
    spec = BestFirstOrder(nodes=40, branch=branch, depth_cap=2)
    check_rows(build_order(spec, wide), wide, spec, step=7)


def test_banned_tokens_are_never_drafted(recording):
    factors = recording["head"], recording["markov_w1"], recording["markov_w2"]
    head = DraftHead(50, *factors, banned=[4, 8])
    scores = BlockScores(hidden=recording["hidden"][:20], head=head, anchor_token=np.zeros(20))
    table = build_block(BestFirstOrder(branch=48, depth_cap=1), scores)
    assert (table.size == 48).all()
    assert not np.isin(table.token, (4, 8)).any()
    np.testing.assert_allclose(np.exp(table.score).sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scores", ["parent", "marginal", "marginal_biased"])
def test_a_banned_token_may_have_the_largest_logit(dtype, scores):
    """Tokens 0 and 2 remain: 3/4 and 1/4 at depth 1, 1/5 and 4/5 at depth 2."""
    logits = np.array([[[np.log(3.0), 40.0, 0.0], [0.0, 9.0, np.log(4.0)]]], dtype)
    given = BlockScores(logits=logits, head=plain_head(3, [1]), anchor_token=[0])
    table = build_block(BestFirstOrder(branch=2, nodes=9, scores=scores), given)
    assert table.size[0] == 6
    assert table.token[0, :6].tolist() == [0, 2, 2, 2, 0, 0]
    expected = np.array([15, 12, 5, 4, 3, 1]) / 20
    np.testing.assert_allclose(np.exp(table.score[0, :6]), expected, atol=1e-7)


def test_normaliser_survives_underflow():
    # logits (0, -600) and bias (-600, 0): every product of shifted exponentials is below 1e-250
    head = DraftHead(2, markov_w1=[[1.0], [0.0]], markov_w2=[[-600.0], [0.0]])
    scores = BlockScores(logits=np.array([[[0.0, -600.0]]]), head=head, anchor_token=[0])
    table = build_block(BestFirstOrder(branch=2), scores)
    np.testing.assert_allclose(np.exp(table.score[0]), [0.5, 0.5], atol=1e-12)
    assert table.token[0].tolist() == [0, 1]
    assert table.ties[0] == 1


def test_equal_products_go_to_the_smaller_token():
    """300 equal logits, whose order a scan by lanes would change."""
    logits = np.zeros((1, 1, 300))
    logits[0, 0, [299, 20, 4]] = 1.0
    scores = BlockScores(logits=logits, head=plain_head(300), anchor_token=[0])
    table = build_block(BestFirstOrder(branch=8, nodes=8), scores)
    assert table.token[0].tolist() == [4, 20, 299, 0, 1, 2, 3, 5]
    assert table.ties[0] == 6


def test_logits_and_factors_may_lie_in_any_order_and_are_left_alone(recording):
    anchors, head = np.arange(9), DraftHead.of(recording)
    single = head.logits(recording["hidden"][anchors]).astype(np.float32)
    kept = single.copy()
    double = single.astype(np.float64)
    fixed = double.copy()
    fixed.flags.writeable = False
    forms = (single, double, fixed, np.asfortranarray(double))
    spec = BestFirstOrder()
    same(*(build_block(spec, live(recording, head, anchors, logits=one)) for one in forms))
    assert (single == kept).all()
    factors = [np.asfortranarray(recording[name]) for name in ("markov_w1", "markov_w2")]
    other = DraftHead(recording.vocab_size, recording["head"], *factors, recording.banned_tokens)
    same(*(build_block(spec, live(recording, one, anchors)) for one in (head, other)))


def test_orders_batches_and_depths_may_alternate_on_one_head(recording):
    head = DraftHead.of(recording)
    specs = [BestFirstOrder(nodes=count) for count in range(1, 12)]  # more than are kept
    steps = ([4], [3, 9, 17], [], list(range(40)), [4])
    for anchors, depths in zip(steps, (3, 1, 3, 2, 3), strict=True):
        anchors = np.array(anchors, np.int64)
        scores = {"hidden": recording["hidden"][anchors, :depths]}
        for spec in specs:
            table = build_block(spec, live(recording, head, anchors, **scores))
            fresh = build_block(spec, live(recording, DraftHead.of(recording), anchors, **scores))
            assert table.score.shape[0] == len(anchors)
            assert table.hit_rank.shape == (len(anchors), depths)
            same(table, fresh)


def test_tables_of_live_blocks_are_their_own_and_read_only(recording):
    head, spec = DraftHead.of(recording), BestFirstOrder(nodes=20)
    first = build_block(spec, live(recording, head, np.array([4])))
    kept = first.token.copy()
    build_block(spec, live(recording, head, np.array([11])))
    np.testing.assert_array_equal(first.token, kept)
    arrays = [getattr(first, name) for name in ("anchors", *cache.ARRAYS)]
    assert all(array.flags.c_contiguous and array.flags.aligned for array in arrays)
    for array in (*arrays, build_order(ChainOrder(), recording).score):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_copied_head_has_work_space_of_its_own(recording):
    head, spec, anchors = DraftHead.of(recording), BestFirstOrder(nodes=20), np.array([4, 8])
    table = build_block(spec, live(recording, head, anchors))
    other = copy.deepcopy(head)
    same(table, build_block(spec, live(recording, other, anchors)))
    assert not np.shares_memory(head.kept().rows, other.kept().rows)


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
                same(one, other)
