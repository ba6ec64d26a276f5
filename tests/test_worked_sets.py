"""Fixed and sampled candidate sets under their verifiers, whole walks, by Monte Carlo."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from real_runner.engine.residual import Rejection
from real_runner.engine.walk import DrawAndMatch
from simulator.orders import build_block
from simulator.orders.families.sampled import SampledOrder
from tests.sampled_cases import P, Q, block_of, draws_of, near, verified

CHUNK = 200_000


def fixed(tokens) -> SimpleNamespace:
    """The same fixed candidate set at depth 1 for a chunk of requests."""
    token = np.tile(tokens, (CHUNK, 1))
    return SimpleNamespace(token=token, parent=token * 0 - 1, depth=token * 0 + 1, spec=None)


def accepted_share(make_table, p, q, chunks: int, verifier=Rejection) -> float:
    """Share of rounds whose tree accepts a token, all of it verified."""
    block, law = block_of(np.log([q]), CHUNK), np.tile(p, (2, len(p), 1))
    rng, accepted = np.random.default_rng(3), 0
    for _ in range(chunks):
        table = make_table(block, rng)
        width = np.full(CHUNK, table.token.shape[1])
        accepted += verified(table, width, block, law, rng, 1.0, verifier).accepted.sum()
    return accepted / (chunks * CHUNK)


def sampled(children: int):
    order = SampledOrder(nodes=children, branch=children, depth_cap=1, temperature=1.0)
    return lambda block, rng: build_block(order, block, draws=draws_of(rng, CHUNK))


def test_a_fixed_set_accepts_its_mass():
    # top 2 of q: B and D, .25 + .10
    near(accepted_share(lambda *_: fixed([1, 3]), P, Q, 13), 13 * CHUNK, 0.35)


def test_a_sampled_set_drawn_and_matched_accepts_less_than_by_rejection():
    inside = [
        q + sum(other * q / (1 - other) for k, other in enumerate(Q) if k != x)
        for x, q in enumerate(Q)
    ]
    expected = sum(p * chance for p, chance in zip(P, inside))
    assert round(expected, 3) == 0.469  # against .775
    near(accepted_share(sampled(2), P, Q, 14, DrawAndMatch), 14 * CHUNK, expected)


def test_neither_kind_of_draft_is_always_better():
    # the overlap of both laws, .6 + .05 + .05, against p of the drafter's best
    p, q = (0.9, 0.05, 0.05), (0.6, 0.2, 0.2)
    near(accepted_share(sampled(1), p, q, 12), 12 * CHUNK, 0.70)
    near(accepted_share(lambda *_: fixed([0]), p, q, 6), 6 * CHUNK, 0.90)
