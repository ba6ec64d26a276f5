"""Host terms from measured rounds: what is left when the device's share is taken out."""

from __future__ import annotations

from itertools import product

import numpy as np

from simulator.cost.host import HostOverhead


def fit_host(
    round_s: np.ndarray, device_s: np.ndarray, nodes: np.ndarray, tree: np.ndarray
) -> HostOverhead:
    """Least squares of ``round_s - device_s`` on a round, a node and a tree term, none negative.

    Judge the result on rounds that are not among these.

    Args:
        round_s: (n,) measured seconds per round.
        device_s: (n,) seconds of drafting and verifying, from a profile.
        nodes: (n,) draft nodes per round.
        tree: (n,) 1 where the round verifies a tree, 0 for a chain.

    Returns:
        The terms; a term whose free fit would be negative is 0.
    """
    terms = np.column_stack([np.ones(len(nodes)), nodes, tree]).astype(float)  # (n, 3)
    left_s = np.asarray(round_s) - np.asarray(device_s)
    best, best_error = np.zeros(3), float(left_s @ left_s)
    for kept in product((False, True), repeat=3):  # exact for three terms, no solver needed
        if not any(kept):
            continue
        part, *_ = np.linalg.lstsq(terms[:, kept], left_s, rcond=None)
        error = float(np.sum((left_s - terms[:, kept] @ part) ** 2))
        if part.min() >= 0 and error < best_error - 1e-15:
            best, best_error = np.zeros(3), error
            best[list(kept)] = part
    return HostOverhead(*(float(value) for value in best))
