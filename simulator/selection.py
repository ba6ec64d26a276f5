"""One budget over all requests of a step: which nodes are the best of the whole batch.

Scores fall along every row, so a choice of the best nodes is a prefix of each row, and a width per
request says everything. Equal scores go to the smaller request, then the smaller node (CAST), or,
where `depth` is given, to the shallower node first (the project's rule). A row is always taken
from its front: a shallow node behind an equal, deeper one waits for it.
"""

from __future__ import annotations

import numpy as np


def top_widths(
    score: np.ndarray, size: np.ndarray, budget: int, depth: np.ndarray | None = None
) -> np.ndarray:
    """Nodes per request among the `budget` best of the batch.

    Args:
        score: (B, M) non-increasing along each row. size: (B,) nodes that exist.
        budget: nodes to keep in all. depth: (B, M), for ties by depth.

    Returns:
        (B,) widths that sum to `budget`, or `size` where the budget covers everything.

    Raises:
        ValueError: a row's scores rise.
    """
    batch, nodes = score.shape
    exists = _existing(score, size)
    if budget >= size.sum():
        return size.astype(np.int64)
    if budget <= 0:
        return np.zeros(batch, np.int64)
    key = np.where(exists, score, -np.inf)
    least = np.partition(key.ravel(), batch * nodes - budget)[batch * nodes - budget]
    widths = (key > least).sum(axis=1)  # (B,) certain
    tied = exists & (key == least)
    request = np.nonzero(tied)[0]  # by request, then node
    if depth is not None:
        request = request[np.argsort(_tie_level(score, depth)[tied], kind="stable")]
    left = budget - int(widths.sum())
    return widths + np.bincount(request[:left], minlength=batch)


def merged_requests(
    score: np.ndarray, size: np.ndarray, depth: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """All nodes of the batch, best first: (K,) request and (K,) score of each.

    The widths of the best n are ``np.bincount(request[:n], minlength=B)``. Arguments as in
    `top_widths`.
    """
    exists = _existing(score, size)
    request = np.nonzero(exists)[0]
    flat = score[exists]  # (K,) by request, then node
    level = np.zeros(len(flat)) if depth is None else _tie_level(score, depth)[exists]
    order = np.lexsort((level, -flat))  # stable: by request, then node, among equals
    return request[order], flat[order]


def _existing(score: np.ndarray, size: np.ndarray) -> np.ndarray:
    exists = np.arange(score.shape[1]) < np.asarray(size)[:, None]  # (B, M)
    if not np.all((score[:, 1:] <= score[:, :-1]) | ~exists[:, 1:]):
        raise ValueError("scores rise along a row: only nested orders share a budget")
    return exists


def _tie_level(score: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Largest depth so far within each run of equal scores of a row: (B, M)."""
    run = np.zeros(score.shape, np.int64)
    run[:, 1:] = np.cumsum(score[:, 1:] != score[:, :-1], axis=1)
    stride = int(depth.max(initial=0)) + 1  # runs follow each other, so a running maximum resets
    return np.maximum.accumulate(run * stride + depth, axis=1) - run * stride
