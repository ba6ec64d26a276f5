"""Made-up draft trees that branch as real ones do."""

from __future__ import annotations

import numpy as np

from simulator.orders import BlockScores, build_block
from simulator.orders.specs import BestFirstOrder
from simulator.orders.table import OrderTable

BRANCH = 8
SURE = (0.4, 0.9)  # probability of a depth's best token


def made_up_trees(
    requests: int, nodes: int, depths: int, tokens: np.ndarray, seed: int
) -> OrderTable:
    """Best-first trees of `nodes` draft nodes, one per request, no two alike.

    Every depth has a geometric law over random tokens, so that trees are long where it is sure
    and wide where it is not; a tree's first nodes are the smaller tree of the same request.

    Args:
        tokens: (n,) those that may be drafted.
    """
    ranks = BRANCH
    while sum(ranks**depth for depth in range(1, depths + 1)) < nodes:
        ranks *= 2
    ranks = min(ranks, len(tokens))
    drawn = [_law(np.random.default_rng([seed, i]), depths, ranks, tokens) for i in range(requests)]
    token, logprob = (np.stack(part) for part in zip(*drawn))
    return build_block(BestFirstOrder(nodes=nodes, branch=ranks), BlockScores(token, logprob))


def _law(rng: np.random.Generator, depths: int, ranks: int, tokens: np.ndarray):
    """Tokens and log-probabilities (depths, ranks), best first."""
    sure = rng.uniform(*SURE, (depths, 1))
    token = [rng.choice(tokens, ranks, replace=False) for _ in range(depths)]
    return np.stack(token), np.log(sure) + np.arange(ranks) * np.log1p(-sure)
