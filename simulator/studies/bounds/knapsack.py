"""O4: one round of a batch, exactly, and the greedy filling that is often taken for it.

A request's gains are 0 or 1 per node and not concave (nothing until its path's next node), so
filling unit by unit can miss most of them. A multiple-choice knapsack takes each request's k_d
nodes whole.
"""

from __future__ import annotations

import numpy as np


def exact_gains(hit_rank: np.ndarray, budget: int) -> tuple[np.ndarray, np.ndarray]:
    """The most draft tokens that a batch can accept with 0..budget nodes in all.

    Args:
        hit_rank: (B, D) 1-based ranks of the realised paths, rising, ABSENT where not there.

    Returns:
        (budget + 1,) accepted tokens, and (B,) widths that attain the last.
    """
    from simulator.studies.bounds.compiled import multiple_choice

    ranks = np.asarray(hit_rank, dtype=np.int64)
    gains, taken = multiple_choice(ranks, budget)
    return gains, _widths(ranks, taken, budget)


def _widths(ranks: np.ndarray, taken: np.ndarray, budget: int) -> np.ndarray:
    widths = np.zeros(len(ranks), np.int64)
    for request in range(len(ranks) - 1, -1, -1):
        accepted = taken[request, budget]
        widths[request] = ranks[request, accepted - 1] if accepted else 0
        budget -= widths[request]
    return widths


def best_budget(gains: np.ndarray, step_s: np.ndarray, price: float) -> int:
    """Nodes m of the largest gains[m] - price * step_s[m]; the smallest of equals.

    Args:
        gains: (M + 1,) of `exact_gains`. step_s: (M + 1,) seconds of a step with m nodes in all.
        price: tokens per second that a second must earn.
    """
    return int(np.argmax(gains - price * step_s))


def water_filling(hit_rank: np.ndarray, budget: int) -> tuple[int, np.ndarray]:
    """NOT A BOUND: node after node to a request whose next one is accepted, as replays often do.

    Where no next node is, the request with the fewest nodes takes it, then the smaller index.

    Returns:
        Accepted tokens and (B,) widths.
    """
    ranks = np.asarray(hit_rank, dtype=np.int64)
    widths = np.zeros(len(ranks), np.int64)
    for _ in range(budget):
        gain = (ranks == widths[:, None] + 1).any(axis=1)
        widths[np.lexsort((widths, ~gain))[0]] += 1
    return int((ranks <= widths[:, None]).sum()), widths
