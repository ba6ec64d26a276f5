"""Sampled trees along recorded texts, against a slow reference and by their properties."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.orders import ABSENT, BlockScores, DraftHead, Draws, build_block, build_order
from simulator.orders.families.sampled import SampledOrder, sampled_edges, sampled_error_bound
from simulator.orders.kernels.sampled import slot_uniforms
from tests import naive_sampled as naive
from tests.confidence import with_confidence
from tests.synthetic import make_hidden, make_pool, make_tree
from traces.common.errors import InputError
from traces.common.keyed_noise import ROOT_KEY, keyed_uniform, step_key
from traces.recordings.files import build_recording

MAKE = {"hidden": make_hidden, "pool": make_pool}


def make(encoding: str, temperature: float = 1.0, **options):
    rng = np.random.default_rng(8)
    seeds = rng.integers(0, 2**31, 6)
    recording = MAKE[encoding](
        rng, depths=4, vocab=24, lengths=[9] * 6, temperature=temperature, **options
    )
    return build_recording(
        recording.meta, dict(recording.arrays) | {"seq_request_seed": seeds}, "seeded"
    )


@pytest.fixture(scope="module")
def recordings():
    kinds = [(encoding, t) for encoding in MAKE for t in (1.0, 0.6)]
    made = {kind: make(*kind) for kind in kinds}
    banned = {"banned_tokens": [1, 7]}
    plain = make_hidden(np.random.default_rng(3), depths=4, vocab=24, temperature=1.0)
    free = np.where(np.isin(plain["tokens"], (1, 7)), 2, plain["tokens"])
    made["banned"] = build_recording(
        dict(plain.meta) | banned, dict(plain.arrays) | {"tokens": free}, "banned"
    )
    made["confident"] = with_confidence(made["hidden", 1.0])
    return made


# ---------------------------------------------------------------- keys


def test_compiled_draws_are_those_of_the_definition():
    """A root with two children, the first of which has one: slots 0, 1 and 0 again below it."""
    rng = np.random.default_rng(0)
    for use, drafted in zip((0, 1, 2) * 20, rng.integers(0, 150_000, 60).tolist()):
        seed, index = int(rng.integers(2**63)), int(rng.integers(2**20))
        parent, token = np.array([[-1, -1, 0]]), np.array([[drafted, 0, 7]])
        out = np.empty((1, 3))
        keys = np.array([seed], np.uint64), np.array([index], np.uint64)
        slot_uniforms(*keys, np.array([3]), parent, token, use, out)
        first, second = step_key(ROOT_KEY, 0), step_key(ROOT_KEY, 1)
        below = step_key(step_key(first, drafted), 0)
        expected = [keyed_uniform(seed, index, slot, use) for slot in (first, second, below)]
        assert out[0].tolist() == expected


def test_keyed_uniforms_are_uniform_and_differ_in_every_part_of_the_key():
    draws = np.array([keyed_uniform(1, 2, step_key(ROOT_KEY, slot), 0) for slot in range(4000)])
    # Kolmogorov and Smirnov's distance exceeds 1.95 / sqrt(n) once in a thousand samples
    assert np.abs(np.sort(draws) - (np.arange(4000) + 0.5) / 4000).max() < 1.95 / 4000**0.5
    base = (1, 2, 3, 0)
    others = [(2, 2, 3, 0), (1, 3, 3, 0), (1, 2, 4, 0), (1, 2, 3, 1)]
    assert len({keyed_uniform(*key) for key in [base, *others]}) == 5


# ---------------------------------------------------------------- against the slow reference

ORDERS = {
    "tree": SampledOrder(nodes=25, branch=3),
    "calibrated": SampledOrder(nodes=20, branch=8, platt=(0.7, -0.4)),
    "shallow": SampledOrder(nodes=40, branch=30, depth_cap=2),
    "chain": SampledOrder(branch=1),
    "cool": SampledOrder(nodes=20, branch=4, temperature=0.5),
    "confident": SampledOrder(branch=1, confidence=(1.0, 0.7, 1.3)),
}
CASES = [
    *((kind, t, name) for kind in MAKE for t in (1.0, 0.6) for name in ORDERS if name[:2] != "co"),
    ("hidden", 1.0, "cool"),
    ("pool", 0.6, "cool"),
    ("confident", 1.0, "confident"),
    ("banned", 1.0, "tree"),
]


@pytest.mark.parametrize(("kind", "temperature", "name"), CASES)
def test_trees_equal_those_of_the_reference(recordings, kind, temperature, name):
    recording = recordings.get((kind, temperature)) or recordings[kind]
    order = ORDERS[name]
    table = build_order(order, recording)
    seeds = recording.arrays.get("seq_request_seed", np.arange(6))
    hits = 0
    for anchor in (0, 3, 7, 8, 20, 31, recording.num_anchors - 1):  # 7: the last of its text
        sequence, output = recording.anchor_sequence[anchor], recording.anchor_output[anchor]
        drafts = order.temperature or recording.temperature
        nodes = naive.grow(
            recording, int(sequence), int(output), int(seeds[sequence]), order, drafts
        )
        size = int(table.size[anchor])
        assert size == len(nodes)
        for column in ("depth", "parent", "token"):
            expected = [getattr(node, column) for node in nodes]
            assert getattr(table, column)[anchor, :size].tolist() == expected
        np.testing.assert_allclose(
            table.score[anchor, :size], [node.score for node in nodes], rtol=0, atol=1e-9
        )
        rank = [ABSENT] * recording.depths
        for index, node in enumerate(nodes):
            if node.accepted:
                rank[node.depth - 1] = index + 1
        assert table.hit_rank[anchor].tolist() == rank
        hits += sum(r != ABSENT for r in rank)
    assert hits >= 5


# ---------------------------------------------------------------- properties


def test_a_floor_leaves_out_what_a_threshold_would(recordings):
    recording = recordings["hidden", 1.0]
    for chain in ({}, {"branch": 1}):
        whole = build_order(SampledOrder(nodes=40, **chain), recording)
        cut = build_order(SampledOrder(nodes=40, floor=np.log(0.05), **chain), recording)
        size = (whole.score >= np.log(0.05)).sum(1)
        assert (cut.size == size).all()
        assert 0 < size.min() < size.max()
        kept = np.arange(whole.max_nodes) < size[:, None]
        assert (cut.token == np.where(kept, whole.token, -1)).all()
        assert (cut.score == np.where(kept, whole.score, -np.inf)).all()
        hit = np.where(whole.hit_rank <= size[:, None], whole.hit_rank, ABSENT)
        assert (cut.hit_rank == hit).all()


def paths(table, row: int) -> dict[tuple, tuple[int, int]]:
    """(slot numbers from the root): (token, node) of every node of a row."""
    name, found, drawn = {-1: ()}, {}, {}
    for node in range(int(table.size[row])):
        above = int(table.parent[row, node])
        name[node] = (*name[above], drawn.get(above, 0))
        drawn[above] = drawn.get(above, 0) + 1
        found[name[node]] = (int(table.token[row, node]), node)
    return found


def live_block(recording, anchors) -> BlockScores:
    if recording.encoding == "pool":
        return BlockScores(recording["pool_token"][anchors], recording["pool_logprob"][anchors])
    head, hidden = DraftHead.of(recording), recording["hidden"][anchors]
    logits = hidden.astype(np.float64) @ recording["head"].astype(np.float64).T
    return BlockScores(logits=logits, head=head, anchor_token=recording.anchor_tokens(anchors))


@pytest.mark.parametrize("kind", ["hidden", "pool"])
def test_live_drafts_are_the_replayed_ones_off_the_accepted_path(recordings, kind):
    """Where both draw below the same tokens and no accepted node, draws are equal."""
    recording = recordings[kind, 1.0]
    order = SampledOrder(nodes=40, branch=4, temperature=1.0)
    anchors = np.arange(recording.num_anchors)
    seeds = recording["seq_request_seed"][recording.anchor_sequence]
    draws = Draws(seeds, recording.anchor_output)
    live = build_block(order, live_block(recording, anchors), draws=draws)
    table = build_order(order, recording)
    assert (live.hit_rank == ABSENT).all()
    compared = same = 0
    for anchor in anchors:
        ours, theirs = paths(table, anchor), paths(live, anchor)
        accepted = {(), *(n for n, (_, m) in ours.items() if m + 1 in table.hit_rank[anchor])}
        for name in ours.keys() & theirs.keys():
            parents = [name[:k] for k in range(1, len(name))]
            if any(ours[above][0] != theirs[above][0] for above in parents):
                continue  # other tokens above are other keys
            if name[:-1] in accepted:
                same += ours[name][0] == theirs[name][0]
                continue
            compared += 1
            assert ours[name][0] == theirs[name][0]
    assert compared > 3 * len(anchors)
    assert same > 0


def test_independent_drafts_come_from_their_stream(recordings):
    recording, order = recordings["hidden", 1.0], SampledOrder(nodes=9, branch=2, temperature=1.0)
    block, none = live_block(recording, np.arange(6)), np.zeros(6, np.int64)

    def drawn(seed: int):
        return build_block(order, block, draws=Draws(none, none, np.random.default_rng(seed)))

    assert (drawn(1).token == drawn(1).token).all()
    assert (drawn(1).token != drawn(2).token).any()


def test_chunks_change_nothing(recordings, monkeypatch):
    recording = recordings["hidden", 1.0]
    whole = build_order(SampledOrder(nodes=20), recording)
    monkeypatch.setattr("simulator.orders.families.sampled._at_once", lambda *_: 7)
    monkeypatch.setattr("simulator.orders.scores.ROW_BYTES", 2 * 16 * 24)  # two rows
    parts = build_order(SampledOrder(nodes=20), recording)
    for name in ("token", "parent", "hit_rank", "size", "ties"):
        assert (getattr(parts, name) == getattr(whole, name)).all()
    np.testing.assert_allclose(parts.score, whole.score, rtol=0, atol=1e-9)


def test_small_vocabularies_run_out():
    rng = np.random.default_rng(0)
    recording = make_hidden(rng, depths=2, vocab=3, temperature=1.0, lengths=[5] * 6)
    table = build_order(SampledOrder(nodes=63, branch=8), recording)
    assert table.max_nodes == 63
    assert (table.size == 3 + 9).all()
    assert (table.hit_rank != ABSENT).all()  # every token is a child, so one is accepted
    assert np.isneginf(table.score[:, 12:]).all()
    assert (table.token[:, 12:] == -1).all()


def test_ties_are_counted_between_parents_alone():
    """Two tokens of q 1/2 each at both depths: both depth-2 parents bound their slots by 1/4."""
    head = DraftHead(2, markov_w1=np.zeros((2, 1)), markov_w2=np.zeros((2, 1)))
    block = BlockScores(logits=np.zeros((1, 2, 2)), head=head, anchor_token=[0])
    table = build_block(SampledOrder(temperature=1.0), block, draws=Draws([1], [1]))
    np.testing.assert_allclose(np.exp(table.score[0, :6]), [0.5, 0.5, *[0.25] * 4])
    assert table.parent[0, :6].tolist() in ([-1, -1, 0, 0, 1, 1], [-1, -1, 0, 1, 0, 1])
    changes = np.count_nonzero(np.diff(table.parent[0, 2:6]))
    assert table.ties[0] == changes


# ---------------------------------------------------------------- fits and bounds


@pytest.mark.parametrize("kind", ["hidden", "pool"])
def test_edges_are_the_children_of_accepted_parents(recordings, kind):
    recording, anchors = recordings[kind, 0.6], np.array([2, 5, 11, 30])
    order = SampledOrder(nodes=30, branch=4)
    table, expected = build_order(order, recording), []
    q, label, depth = sampled_edges(recording, table, anchors)
    for anchor in anchors:
        parents = {-1: int(recording.anchor_tokens(np.array([anchor]))[0])}
        for node in range(int(table.size[anchor])):
            d, above = int(table.depth[anchor, node]), int(table.parent[anchor, node])
            if above in parents:
                law, _ = naive.draft_laws(recording, anchor, d - 1, parents[above], 1.0)
                hit = table.hit_rank[anchor, d - 1] == node + 1
                token = int(table.token[anchor, node])
                expected.append((d, bool(hit), law[token]))
                if hit:
                    parents[node] = token
    found = sorted(zip(depth.tolist(), label.tolist(), q.tolist()))
    assert [row[:2] for row in found] == [row[:2] for row in sorted(expected)]
    np.testing.assert_allclose(
        [row[2] for row in found], [row[2] for row in sorted(expected)], rtol=1e-9
    )
    assert label.sum() == (table.hit_rank[anchors] != ABSENT).sum() > 0


def test_what_a_pool_leaves_out(recordings):
    assert (sampled_error_bound(recordings["hidden", 1.0], np.arange(5)) == 0).all()
    recording = recordings["pool", 1.0]
    bound = sampled_error_bound(recording, np.array([4, 9]))
    for value, anchor in zip(bound, (4, 9)):
        tails = 1 - np.exp(recording["pool_logprob"][anchor].astype(np.float64)).sum(-1)
        assert value == pytest.approx(tails.max())
        assert 0 < value < 1


# ---------------------------------------------------------------- refusals


def test_recordings_that_hold_too_little_are_refused(recordings):
    hidden = recordings["hidden", 1.0]
    cold = make_hidden(np.random.default_rng(0))
    tree = make_tree(np.random.default_rng(0), temperature=1.0, lengths=[4] * 6)
    chain = {"branch": 1, "confidence": (1.0,) * 4}
    for order, recording, why in (
        (SampledOrder(), cold, "temperature 0"),
        (SampledOrder(), tree, "encoding 'tree'"),
        (SampledOrder(depth_cap=5), hidden, "holds 4 depths"),
        (SampledOrder(**chain), hidden, "no confidence head"),
        (SampledOrder(branch=1, confidence=(1.0,) * 5), recordings["confident"], "4 depths"),
        (SampledOrder(**chain | {"depth_cap": 3, "confidence": (1.0,)}), recordings["confident"],
         "3 numbers"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=why):
            build_order(order, recording)


def test_live_blocks_need_draws_and_a_temperature(recordings):
    block = live_block(recordings["hidden", 1.0], np.arange(2))
    with pytest.raises(InputError, match="without a temperature"):
        build_block(SampledOrder(), block, draws=Draws(np.arange(2), np.arange(2)))
    with pytest.raises(InputError, match="without draws"):
        build_block(SampledOrder(temperature=1.0), block)
