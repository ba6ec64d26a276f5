"""Replays of whole sequences: by hand, in closed form, and against a slow loop."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.orders import (
    BestFirstOrder,
    BlockScores,
    ChainOrder,
    StaticOrder,
    acceptance_length_by_budget,
    build_block,
    build_order,
    prefix_mass,
    replay,
)
from tests.reference import RawScores
from tests.reference_orders import drafted, walked
from tests.synthetic import make_geometric, make_hidden, make_meta, make_pool
from traces import InputError
from traces.recordings.files import build_recording

RIGHT, WRONG = -0.5, -1.5


def _chain_recording(outputs: list[list[int]], hits: list[list[str]], depths: int):
    """Prompt 0, these outputs (the last `depths` of each are lookahead), one-token pools.

    hits[s][i] says per depth of anchor i whether its draft is the realised token ("y") or not.
    """
    tokens, pools, position, anchors, offset = [], [], 0, [], [0]
    for text, rows in zip(outputs, hits, strict=True):
        assert len(rows) == len(text) - depths - 1
        for i, row in enumerate(rows):
            anchors.append(position + 1 + i)
            ahead = text[i + 1 : i + 1 + depths]
            pools.append([t if h == "y" else (t + 1) % 9 for t, h in zip(ahead, row, strict=True)])
        tokens += [0, *text]
        position += 1 + len(text)
        offset.append(position)
    flat = [[RIGHT if h == "y" else WRONG for h in row] for rows in hits for row in rows]
    arrays = {
        "tokens": np.array(tokens),
        "seq_offset": np.array(offset),
        "prompt_len": np.ones(len(outputs), int),
        "output_len": np.array([len(text) - depths for text in outputs]),
        "domain": np.zeros(len(outputs), int),
        "split": np.full(len(outputs), 2),
        "anchor_pos": np.array(anchors),
        "pool_token": np.array(pools)[..., None],
        "pool_logprob": np.full((len(pools), depths, 1), np.float32(RIGHT)),
        "path_logq": np.array(flat, dtype=np.float32),
    }
    lengths = [len(text) - depths for text in outputs]
    generation = {"max_new_tokens": max(lengths), "ignore_eos": True}
    return build_recording(make_meta("pool", 10, max(lengths), generation=generation), arrays)


def test_rounds_by_hand():
    # Seven outputs (anchors 0..5), two depths. From anchor 0: two hits, go to 3; none, go to 4;
    # two hits again, but only outputs 5 and 6 remain: two tokens for an acceptance of two.
    hits = ["yy", "yy", "nn", "ny", "yy", "yn"]
    recording = _chain_recording([[1, 2, 3, 4, 5, 6, 7, 8, 1]], [hits], 2)
    table = build_order(ChainOrder(), recording)
    done = replay(table, recording, np.array([0]), 2)
    assert done.anchors.tolist() == [0, 3, 4]
    assert (done.rounds[0], done.tokens[0], done.accepted[0]) == (3, 6, 4)
    assert done.depth_hits.tolist() == [[2, 2]]
    assert done.acceptance_length == 1 + 4 / 3
    assert done.committed_round_length == 2
    # width 1: 0 -> 2 -> 3 -> 4 -> 6, hits y n n y; width 0: a token a round
    one = replay(table, recording, np.array([0]), 1)
    assert one.anchors.tolist() == [0, 2, 3, 4]
    assert one.accepted[0] == 2
    none = replay(table, recording, np.array([0]), 0)
    assert none.anchors.tolist() == [0, 1, 2, 3, 4, 5]
    assert none.acceptance_length == 1


@pytest.mark.parametrize("alpha", [0.5, 0.8])
def test_geometric_drafter_within_its_error(alpha):
    recording = make_geometric(alpha, np.random.default_rng(3), sequences=80, length=160)
    table = build_order(ChainOrder(), recording)
    sequences = recording.sequences_of()
    for width in (1, 3, 8):
        done = replay(table, recording, sequences, width)
        rounds = int(done.rounds.sum())
        law = [alpha**k * (1 - alpha) for k in range(width)] + [alpha**width]
        mean = (1 - alpha ** (width + 1)) / (1 - alpha)
        spread = math.sqrt(sum(p * (1 + k - mean) ** 2 for k, p in enumerate(law)) / rounds)
        assert abs(done.acceptance_length - mean) < 4 * spread
        assert spread < 0.02 * mean  # so that the bound above means something


def slow_replay(recording, trees, sequence: int, width: int):
    """(rounds, tokens, accepted, hits by depth) of a sequence, `width` nodes a round."""
    last = recording.anchor_offset[sequence + 1]
    rounds = tokens = total = 0
    hits = [0] * recording.depths
    realised = recording.realised(np.arange(recording.num_anchors)).tolist()
    reach = [len(tree.first(width).accepted(path)) for tree, path in zip(trees, realised)]
    for anchor, accepted in walked(recording, sequence, reach.__getitem__):
        rounds, total = rounds + 1, total + accepted
        tokens += min(accepted + 1, last - anchor)
        hits = [count + (depth < accepted) for depth, count in enumerate(hits)]
    return rounds, tokens, total, hits


CASES = [
    (make_pool, "depth", [0, 1, 4, 15]),
    (make_hidden, "tick", [0, 2, 9, 20]),
]


@pytest.mark.parametrize(("make", "ties", "widths"), CASES)
def test_replay_is_the_slow_loop(make, ties, widths):
    recording = make(np.random.default_rng(11), lengths=[1, 2, 9, 17, 12, 5])
    spec, raw = (
        BestFirstOrder(nodes=20, branch=4, ties=ties),
        RawScores(recording.arrays, recording.meta),
    )
    table = build_order(spec, recording)
    trees = [drafted(spec, raw, anchor) for anchor in range(recording.num_anchors)]
    sequences = np.array([4, 0, 1, 3])
    for width in widths:
        done = replay(table, recording, sequences, width)
        for row, sequence in enumerate(sequences):
            expected = slow_replay(recording, trees, sequence, width)
            got = (done.rounds[row], done.tokens[row], done.accepted[row])
            assert (*got, done.depth_hits[row].tolist()) == expected
        assert done.rounds[1] == 0  # one output: prefill emitted it, nothing is left
    assert replay(table, recording, np.array([0]), 4).acceptance_length == 1


def test_acceptance_length_by_budget():
    recording = make_hidden(np.random.default_rng(12), lengths=[20] * 6)
    table = build_order(BestFirstOrder(nodes=31), recording)
    sequences = recording.sequences_of("report")
    curve = acceptance_length_by_budget(table, recording, sequences, (0, 1, 7, 31))
    assert list(curve) == [0, 1, 7, 31]
    assert curve[0] == 1
    assert curve[7] == replay(table, recording, sequences, 7).acceptance_length
    assert curve[31] > curve[1] > 1


by_anchor = [np.full(3, 2), np.full(12, 8), np.full(12, 1.5)]  # too few, too wide, no integers


@pytest.mark.parametrize("width", [-1, 5, 2.0, True, None, *by_anchor])
def test_bad_widths_are_refused(width):
    recording = make_pool(np.random.default_rng(14), lengths=[5] * 3, sequences=3)
    table = build_order(ChainOrder(), recording)
    with pytest.raises(InputError, match=r"width: .* 0\.\.4"):
        replay(table, recording, np.array([0]), width)


def test_prefix_mass_by_hand():
    scores = BlockScores(
        np.array([[[0, 1], [2, 3]], [[0, 1], [2, 3]]]),
        np.log([[[0.5, 0.25], [0.5, 0.1]], [[0.9, 0.1], [1.0, 1e-300]]]),
    )
    table = build_block(BestFirstOrder(nodes=3, branch=2), scores)
    # masses .5 .25 .25 and .9 .9 .1
    np.testing.assert_allclose(prefix_mass(table, np.array([0, 1])), [0.7, 0.575, 0.175])
    np.testing.assert_allclose(prefix_mass(table, np.array([1])), [0.9, 0.9, 0.1])
    static = build_block(StaticOrder(branching=(2, 1)), scores)
    # masses .5 .25 | .25 .125: sorted, not in the order of emission
    np.testing.assert_allclose(prefix_mass(static, np.array([0])), [0.5, 0.25, 0.25, 0.125])
    with pytest.raises(InputError, match="no anchors"):
        prefix_mass(table, np.array([], dtype=int))
