"""The verifier of sampled drafts: by hand, against a slow reference, and what fixed sets do."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from real_runner.engine.draws import IndependentDraws, KeyedDraws
from real_runner.engine.residual import Rejection, make_verifier, try_children
from real_runner.engine.walk import DraftLaws, DrawAndMatch, GreedyMatch
from simulator.orders import BestFirstOrder, BlockScores, build_block
from simulator.orders.families.sampled import SampledOrder
from tests.sampled_cases import LawRound, P, Q, block_of, draws_of, trees_of
from traces.common.errors import InputError
from traces.common.keyed_noise import ROOT_KEY, VERIFY, keyed_draw, keyed_uniform, step_key

# ---------------------------------------------------------------- one node, by hand


def tried(p, q, coins, token) -> tuple[int, np.ndarray, np.ndarray]:
    """(accepted child, p and q that are left) of one root."""
    p, q, token = (np.array([part]) for part in (p, q, token))
    arrays = (np.array([token.size]), np.full(token.shape, -1), token, np.array([coins]))
    (child,) = try_children(*arrays, np.array([0]), np.array([-1]), p, q)
    return int(child), p[0], q[0]


def test_residuals_by_hand():
    # B is rejected (.5 x .9 > .25): p = (.25, 0, .15, 0) / .4; q = (.3, 0, .2, .5)
    child, p, q = tried(P, Q, [0.9, 0.99], [1, 3])
    assert child == -1
    np.testing.assert_allclose(q, [0.6, 0, 0.4, 0])  # D is tried in vain: the text is A or C
    np.testing.assert_allclose(p, [0.325 / 0.5, 0, 0.175 / 0.5, 0])
    # B is accepted with chance .25 / .5; behind its rejection A and C are always
    assert tried(P, Q, [0.499, 0.9], [1, 3])[0] == 0
    assert tried(P, Q, [0.501, 0.9], [1, 3])[0] == -1
    assert tried(P, Q, [0.501, 0.999], [1, 2])[0] == 1
    # D first, with chance .10 / .25; then q = (.2, .667, .133, 0) and A's p / q is above 1 again
    assert tried(P, Q, [0.399, 0.9], [3, 0])[0] == 0
    assert tried(P, Q, [0.401, 0.999], [3, 0])[0] == 1


def test_where_rounding_leaves_no_residual_the_proposal_takes_its_place():
    law = [0.5, 0.3, 0.2]
    child, p, _ = tried(law, law, [1.0], [0])  # no coin is 1, but rounding may act like one
    assert child == -1
    np.testing.assert_allclose(p, [0, 0.6, 0.4])


# ---------------------------------------------------------------- trees, against a slow reference


def random_case(seed: int, count: int, depths: int = 3, vocab: int = 6):
    """(block, target's law (depths + 1, V, V)) with a drafter not far off."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(depths, vocab))
    w1, w2 = (rng.normal(size=(vocab, 2)) * 0.7 for _ in range(2))
    mean = np.concatenate([logits, logits[:1]])[:, None] + w1 @ w2.T
    weight = np.exp(mean + rng.normal(size=mean.shape) * 0.6)
    return block_of(logits, count, w1, w2), weight / weight.sum(-1, keepdims=True)


def seen(table, width, block, law, temperature, seeds, index) -> LawRound:
    laws = DraftLaws(None, None, np.arange(len(width)), block)
    return LawRound(trees_of(table, width), law, temperature, laws, seeds, index)


def slow_walk(round: LawRound, i: int) -> tuple[list[int], list[int]]:
    """(nodes, tokens) of one request by the definition, with keyed draws."""
    trees, t = round.trees, round.temperature
    seed, index = int(round.seeds[i]), int(round.output_index[i])
    head, logits = round.laws.block.head, round.laws.block.logits[i]
    key, drawn = {-1: ROOT_KEY}, {}
    coin = {}
    for m in range(trees.width[i]):
        above = int(trees.parent[i, m])
        slot = step_key(key[above], drawn.get(above, 0))
        drawn[above] = drawn.get(above, 0) + 1
        coin[m], key[m] = keyed_uniform(seed, index, slot, VERIFY), step_key(
            slot, int(trees.token[i, m])
        )  # fmt: skip
    node, nodes, tokens, token = -1, [], [], int(trees.root[i])
    while True:
        depth = len(nodes)
        p = round.law[depth, token].copy()
        children = [m for m in range(trees.width[i]) if trees.parent[i, m] == node]
        left = np.ones(len(p), bool)
        for m in children:
            x = int(trees.token[i, m])
            q = np.exp((logits[depth] + head.w1[token] @ head.w2) / trees.sampled) * left
            q /= q.sum()
            if coin[m] < min(1.0, p[x] / q[x]):
                node = m
                break
            p = np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()
            left[x] = False
        else:
            with np.errstate(divide="ignore"):
                tokens.append(keyed_draw(t * np.log(p), t, seed, index + 1 + depth))
            return nodes, tokens
        token = int(trees.token[i, node])
        nodes.append(node)
        tokens.append(token)


@pytest.mark.parametrize(("drafts", "temperature"), [(1.0, 1.0), (0.6, 0.6), (1.0, 0.5)])
def test_walks_equal_those_of_the_definition(drafts, temperature):
    count = 150
    block, law = random_case(4, count)
    rng = np.random.default_rng(6)
    seeds, index = rng.integers(0, 2**40, count), rng.integers(0, 60, count)
    verifier = Rejection(KeyedDraws(temperature))
    order = SampledOrder(nodes=14, branch=3, temperature=drafts)
    table = build_block(order, block, draws=verifier.drafts(seeds, index))
    width = rng.integers(0, 15, count)
    round = seen(table, width, block, law, temperature, seeds, index)
    walk = verifier.walk(round)
    for i in range(count):
        nodes, tokens = slow_walk(round, i)
        room = walk.path.shape[1]
        assert walk.accepted[i] == len(nodes)
        assert walk.path[i].tolist() == nodes + [-1] * (room - len(nodes))
        assert walk.token[i].tolist() == tokens + [-1] * (room + 1 - len(tokens))
    assert set(walk.accepted.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("draws", ["keyed", "independent"])
def test_fixed_sets_are_drawn_and_matched(draws):
    count = 60
    block, law = random_case(5, count)
    table = build_block(BestFirstOrder(nodes=9, branch=3), block)
    seeds, width = np.arange(count), np.arange(count) % 10

    def walk(make):
        rng = np.random.default_rng(1)
        chosen = KeyedDraws(0.8) if draws == "keyed" else IndependentDraws(0.8, rng)
        return make(chosen).walk(seen(table, width, block, law, 0.8, seeds, seeds))

    ours, theirs = walk(Rejection), walk(DrawAndMatch)
    for name in ("accepted", "path", "token"):
        assert (getattr(ours, name) == getattr(theirs, name)).all()
    assert ours.accepted.max() >= 2


def test_rows_are_single_draws_in_turn():
    logits = np.random.default_rng(0).normal(size=(5, 7))
    seeds, index = np.arange(5), np.arange(5) + 3
    keyed = KeyedDraws(0.7)
    one_by_one = [keyed_draw(row, 0.7, s, i) for row, s, i in zip(logits, seeds, index)]
    assert keyed.rows(logits, seeds, index).tolist() == one_by_one
    many, single = (IndependentDraws(0.7, np.random.default_rng(2)) for _ in range(2))
    one_by_one = [single.rows(row[None], seeds, index)[0] for row in logits]
    assert many.rows(logits, seeds, index).tolist() == one_by_one


def test_pools_are_verified_by_the_law_they_are_drawn_from():
    """The drafts of a pool are its tokens alone, and their law is normalised over them."""
    rng = np.random.default_rng(0)
    token = np.array([[[4, 1, 3]]])
    logq = np.log([[[0.4, 0.2, 0.1]]])
    laws = DraftLaws(None, None, np.zeros(1, np.int64), BlockScores(token, logq))
    q = laws.sampled(np.zeros(1, np.int64), 0, np.zeros(1, np.int64), 1.0, 6)
    np.testing.assert_allclose(q[0], [0, 2 / 7, 0, 1 / 7, 4 / 7, 0])
    order = SampledOrder(nodes=1, branch=1, temperature=1.0)
    many = BlockScores(np.repeat(token, 4000, 0), np.repeat(logq, 4000, 0))
    drawn = build_block(order, many, draws=draws_of(rng, 4000)).token[:, 0]
    share = np.bincount(drawn, minlength=6) / 4000
    assert np.abs(share - q[0]).max() < 4 * (0.25 / 4000) ** 0.5


def test_temperature_zero_samples_no_drafts():
    assert isinstance(make_verifier(0.0), GreedyMatch)
    assert isinstance(make_verifier(0.5), Rejection)
    with pytest.raises(InputError, match="temperature is 0"):
        GreedyMatch().drafts(np.zeros(1), np.zeros(1))
