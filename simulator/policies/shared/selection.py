"""One budget over all requests of a step: which nodes are the best of the whole batch.

Scores fall along every row, so a choice of the best nodes is a prefix of each row, and a width per
request says everything. Equal scores go to the smaller request, then the smaller node (CAST), or,
where `depth` is given, to the shallower node first (the project's rule). A row is always taken
from its front: a shallow node behind an equal, deeper one waits for it.
"""

from __future__ import annotations

import numpy as np

from simulator.policy import Step


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


def step_curve_s(step: Step, request: np.ndarray, tree: bool = False) -> np.ndarray:
    """Seconds of the drafted step that verifies the first 0..K nodes: (K + 1,).

    Draft, verify and host, at the step's batch and mean context: `StepCost.step` of every prefix.

    Args:
        request: (K,) whose node comes when, as `selection.merged_requests` gives it; where
            batches are padded to the largest tree the cost depends on it.
        tree: whether the nodes form trees.
    """
    batch, nodes = step.batch, np.arange(len(request) + 1)
    if step.cost.packing == "dense":
        return _step_s(step, nodes, batch * (1 + _largest(request)), tree)
    by_request = any(cliff.of_request for cliff in getattr(step.cost, "cliffs", ()))
    largest = 1 + _largest(request) if by_request else None
    return _step_s(step, nodes, nodes + batch, tree, largest)


def padded_curve_s(step: Step, most: int) -> np.ndarray:
    """Seconds of the drafted step with trees of 0 to `most` nodes for every request: (most + 1,).

    That is what padding to the largest tree costs, however many nodes the other requests verify.
    """
    nodes = step.batch * np.arange(most + 1)
    return _step_s(step, nodes, nodes + step.batch, tree=True)


def _step_s(
    step: Step,
    nodes: np.ndarray,
    packed: np.ndarray,
    tree: bool,
    largest: np.ndarray | None = None,
) -> np.ndarray:
    """Seconds of (n,) draft nodes and (n,) packed tokens, as they run.

    largest: (n,) packed tokens of the largest request, where a cliff asks for them.
    """
    cost, batch = step.cost, step.batch
    context = float(np.add.reduce(step.load.context)) / batch
    more = () if largest is None else (largest,)
    verify_s = cost.verify_curve_s(batch, packed, context, *more)
    device_s = cost.draft_s(batch, context) + verify_s
    trees, ordered = (nodes > 0) & tree, int(step.draft.size.sum())
    return device_s + cost.host.seen_curve_s(
        nodes, device_s, requests=batch, tree=trees, ordered=ordered
    )


def _largest(request: np.ndarray) -> np.ndarray:
    """Nodes of the request that has most, after each node of the merged batch: (K + 1,)."""
    order = np.argsort(request, kind="stable")
    owner = request[order]
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if len(owner) else owner
    count = np.empty(len(request), np.int64)
    count[order] = np.arange(1, len(owner) + 1) - np.repeat(
        first, np.diff(np.r_[first, len(owner)])
    )
    return np.maximum.accumulate(np.r_[0, count])
