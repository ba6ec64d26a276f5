"""Scored chains against scores taken from the recording by hand, and live blocks against both."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.orders import BlockScores, ChainOrder, DraftHead, build_block, build_order
from simulator.orders.families.scored_chain import EVIDENCE, ScoredChain
from simulator.orders.table import ARRAYS
from tests.confidence import HEAD, with_confidence
from tests.reference_orders import blocks_of, check_rows
from tests.synthetic import make_hidden, make_pool
from traces.common.errors import InputError
from traces.recordings.files import build_recording
from traces.recordings.recording import Recording

DEPTHS = 4
KINDS = [*(("hidden", kind) for kind in EVIDENCE), ("pool", "margin"), ("pool", "q")]
MAPS = ((0.7, -0.2), (1.3, 0.1), (0.4, 0.0), (2.0, -1.0))


@pytest.fixture(scope="module")
def hidden() -> Recording:
    return with_confidence(make_hidden(np.random.default_rng(1), depths=DEPTHS))


@pytest.fixture(scope="module")
def pool() -> Recording:
    return make_pool(np.random.default_rng(2), depths=DEPTHS, lengths=[12] * 6)


def test_a_live_engines_confidence_logits_are_taken(hidden):
    anchors, head = np.arange(6), DraftHead.of(hidden)
    states = hidden["hidden"][anchors].astype(np.float64)
    given = {"logits": head.logits(states), "anchor_token": hidden.anchor_tokens(anchors)}
    logit = states @ head.confidence[0] + head.confidence[2]
    block = BlockScores(head=head, confidence_logit=logit, **given)
    live = build_block(ScoredChain("confidence", MAPS), block)
    table = build_order(ScoredChain("confidence", MAPS), hidden)
    assert live.score == pytest.approx(table.score[anchors], abs=1e-12)
    assert (live.hit_rank == 32767).all()
    with pytest.raises(InputError, match="logits without confidence_logit"):
        build_block(ScoredChain("confidence"), BlockScores(head=head, **given))


@pytest.mark.parametrize(("kind", "evidence"), KINDS)
def test_scores_are_sums_of_mapped_evidence_along_the_chain(request, kind, evidence):
    """And live blocks score as their recording does, to the last digit."""
    recording = request.getfixturevalue(kind)
    spec = ScoredChain(evidence, MAPS)
    table, chain = build_order(spec, recording), build_order(ChainOrder(), recording)
    for name in ("depth", "parent", "token", "size", "hit_rank"):
        assert np.array_equal(getattr(table, name), getattr(chain, name))
    check_rows(table, recording, spec, step=5)
    assert np.all(np.diff(table.score, axis=1) <= 0)
    assert not table.ties.any()
    for batch in (1, 3, 17):
        anchors = np.arange(batch) * 3
        block = next(blocks_of(recording, anchors))
        live = build_block(spec, block, recording.realised(anchors))
        for name in ARRAYS:
            assert np.array_equal(getattr(live, name), getattr(table, name)[anchors]), name


def test_stored_confidences_serve_where_no_head_is_recorded(hidden):
    stored = np.full((hidden.num_anchors, DEPTHS), 0.25, np.float16)
    stored[0] = (1.0, 0.5, 0.0, 0.75)
    arrays = dict(hidden.arrays) | {"confidence": stored}
    both = build_recording(dict(hidden.meta), arrays, "both")  # the head is preferred
    ours = build_order(ScoredChain("confidence"), both).score
    assert np.array_equal(ours, build_order(ScoredChain("confidence"), hidden).score)
    arrays = {name: array for name, array in arrays.items() if name not in HEAD}
    recording = build_recording(dict(hidden.meta), arrays, "no head")
    table = build_order(ScoredChain("confidence"), recording)
    assert np.exp(table.score[1]) == pytest.approx(0.25 ** np.arange(1, 5))
    # float16 rounds to 1 from 1 - 2 ** -12 on, and to 0 up to 2 ** -25
    first = np.exp(table.score[0])
    assert first[:2] == pytest.approx([1 - 2.0**-12, (1 - 2.0**-12) / 2], rel=1e-12)
    assert first[2] == pytest.approx(first[1] * 2.0**-25, rel=1e-6)


def test_a_shorter_chain_is_the_beginning_of_a_longer_one(hidden):
    whole = build_order(ScoredChain("margin", MAPS), hidden)
    short = build_order(ScoredChain("margin", MAPS[:2]), hidden)
    assert np.array_equal(short.score, whole.score[:, :2])
    assert short.hit_rank.shape == whole.hit_rank.shape
    inside = whole.hit_rank <= 2
    assert np.array_equal(short.hit_rank[inside], whole.hit_rank[inside])
    assert (short.hit_rank[~inside] == 32767).all()


def test_certain_tokens_tie_and_the_rest_does_not(pool):
    table = build_order(ScoredChain("margin", ((0, 800), (0, 0), (0, 800), (0, 800))), pool)
    # sigmoid(800) is 1: depths 1 is 0, and 3 and 4 repeat the score of depth 2
    assert np.exp(table.score[0]).tolist() == pytest.approx([1, 0.5, 0.5, 0.5])
    assert (table.ties == 2).all()


def test_what_a_recording_lacks_is_refused_in_one_line(hidden, pool):
    narrow = make_pool(np.random.default_rng(0), depths=2, pool=1)
    for spec, recording, says in (
        (ScoredChain("confidence"), pool, "synthetic pool: records no confidence, accepted"),
        (ScoredChain("q", MAPS + MAPS[:1]), hidden, "5 pairs, but with head holds 4 depths"),
        (ScoredChain("margin"), narrow, "needs 2 ranks per depth, but synthetic pool holds 1"),
    ):
        with pytest.raises(InputError, match=says):
            build_order(spec, recording)
