"""Live blocks get the replayed order; the head's bias rows, bans and normaliser."""

from __future__ import annotations

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
from simulator.orders import block as block_module
from tests.order_recordings import order_recordings
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
