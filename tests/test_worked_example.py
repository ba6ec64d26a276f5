"""One node of four tokens whose acceptance is known in closed form, by Monte Carlo to 3 decimals.

Target p = (.40, .25, .25, .10), drafter q = (.15, .50, .10, .25), two children. A first child is
rejected with chance Z = sum (q - p)+ = .40, and is then B (.625) or D (.375); p becomes
(.625, 0, .375, 0). After B, q is (.3, 0, .2, .5), after D (.2, .667, .133, 0). Given the text:
P(accepted | A) = .375 + .625 (.625 x .3 / .625 + .375 x .2 / .625) = .6375,
P(accepted | C) = .4 + .6 (.625 x .2 / .375 + .375 x .1333 / .375) = .68, and B and D are always
accepted when they are the text. Overall .4 x .6375 + .25 + .25 x .68 + .1 = .775.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from real_runner.engine.residual import Rejection, try_children
from real_runner.engine.walk import DrawAndMatch
from simulator.orders import Draws, build_block
from simulator.orders.families.sampled import SampledOrder
from simulator.orders.kernels import sampled as kernel
from tests.sampled_cases import P, Q, block_of, draws_of, near, sample_rows, verified

CHUNK, SOME = 250_000, 200_000
ACCEPTED = (0.6375, 1.0, 0.68, 1.0)  # given the text A, B, C, D
OVERALL = 0.775
TWO = SampledOrder(nodes=2, branch=2, depth_cap=1, temperature=1.0)


@pytest.mark.parametrize(
    ("x", "count"), [(0, 2_750_000), (1, 250_000), (2, 2_500_000), (3, 250_000)]
)
def test_the_replayed_posterior_accepts_as_it_should(x, count):
    block, accepted = block_of(np.log([Q]), CHUNK), 0
    zeros = np.zeros((CHUNK, 1), np.int64)
    truth = kernel.Truth(np.array([P]), zeros, zeros + x)
    for seed in range(0, count, CHUNK):
        draws = Draws(np.arange(seed, seed + CHUNK), zeros[:, 0])
        accepted += np.count_nonzero(TWO.grown(block, truth, draws)["hit_rank"] <= 2)
    near(accepted / count, count, ACCEPTED[x])


def test_overall_acceptance_follows_from_the_texts():
    assert math.isclose(sum(p * a for p, a in zip(P, ACCEPTED)), OVERALL)


def drawn(law, rng, count: int) -> np.ndarray:
    return np.searchsorted(np.cumsum(law)[:-1], rng.random(count), side="right")


def two_children(rng, count: int) -> np.ndarray:
    """(count, 2) tokens from q without replacement, in the sequence of their draws."""
    first, second = drawn(Q, rng, count), np.empty(count, np.int64)
    for token in range(4):
        left = np.where(np.arange(4) == token, 0.0, Q)
        chosen = first == token
        second[chosen] = drawn(left / left.sum(), rng, np.count_nonzero(chosen))
    return np.stack([first, second], axis=1)


def test_the_live_verifier_accepts_as_it_should():
    """Acceptance given what is emitted, over ten million rounds; drafts are the test's own."""
    rng = np.random.default_rng(2)
    seen, accepted = np.zeros(4), np.zeros(4)
    two, roots = np.full(CHUNK, 2), np.full(CHUNK, -1)
    parent, request = np.full((CHUNK, 2), -1), np.arange(CHUNK)
    for _ in range(40):
        token, coins = two_children(rng, CHUNK), rng.random((CHUNK, 2))
        p, q = np.tile(P, (CHUNK, 1)), np.tile(Q, (CHUNK, 1))
        child = try_children(two, parent, token, coins, request, roots, p, q)
        emitted = np.take_along_axis(token, child.clip(0)[:, None], 1)[:, 0]
        open_ = child < 0
        emitted[open_] = sample_rows(p[open_], rng)
        seen += np.bincount(emitted, minlength=4)
        accepted += np.bincount(emitted[~open_], minlength=4)
    for x in range(4):
        near(seen[x] / seen.sum(), int(seen.sum()), P[x])
        near(accepted[x] / seen[x], int(seen[x]), ACCEPTED[x])
    near(accepted.sum() / seen.sum(), int(seen.sum()), OVERALL)


# ---------------- Whole walks over fixed and sampled candidate sets.


def fixed(tokens) -> SimpleNamespace:
    """The same fixed candidate set at depth 1 for a chunk of requests."""
    token = np.tile(tokens, (SOME, 1))
    return SimpleNamespace(token=token, parent=token * 0 - 1, depth=token * 0 + 1, spec=None)


def accepted_share(make_table, p, q, chunks: int, verifier=Rejection) -> float:
    """Share of rounds whose tree accepts a token, all of it verified."""
    block, law = block_of(np.log([q]), SOME), np.tile(p, (2, len(p), 1))
    rng, accepted = np.random.default_rng(3), 0
    for _ in range(chunks):
        table = make_table(block, rng)
        width = np.full(SOME, table.token.shape[1])
        accepted += verified(table, width, block, law, rng, 1.0, verifier).accepted.sum()
    return accepted / (chunks * SOME)


def sampled(children: int):
    order = SampledOrder(nodes=children, branch=children, depth_cap=1, temperature=1.0)
    return lambda block, rng: build_block(order, block, draws=draws_of(rng, SOME))


def test_a_fixed_set_accepts_its_mass():
    # top 2 of q: B and D, .25 + .10
    near(accepted_share(lambda *_: fixed([1, 3]), P, Q, 13), 13 * SOME, 0.35)


def test_a_sampled_set_drawn_and_matched_accepts_less_than_by_rejection():
    inside = [
        q + sum(other * q / (1 - other) for k, other in enumerate(Q) if k != x)
        for x, q in enumerate(Q)
    ]
    expected = sum(p * chance for p, chance in zip(P, inside))
    assert round(expected, 3) == 0.469  # against .775
    near(accepted_share(sampled(2), P, Q, 14, DrawAndMatch), 14 * SOME, expected)


def test_neither_kind_of_draft_is_always_better():
    # the overlap of both laws, .6 + .05 + .05, against p of the drafter's best
    p, q = (0.9, 0.05, 0.05), (0.6, 0.2, 0.2)
    near(accepted_share(sampled(1), p, q, 12), 12 * SOME, 0.70)
    near(accepted_share(lambda *_: fixed([0]), p, q, 6), 6 * SOME, 0.90)
