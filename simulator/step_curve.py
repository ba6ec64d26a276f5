"""What a step costs with the first 0, 1, 2, ... nodes of a merged batch, as the engine runs it."""

from __future__ import annotations

import numpy as np

from simulator.policy import Step


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
