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
    ragged = step.cost.packing == "ragged"
    packed = nodes + batch if ragged else batch * (1 + _largest(request))
    return _step_s(step, nodes, packed, tree)


def padded_curve_s(step: Step, most: int) -> np.ndarray:
    """Seconds of the drafted step with trees of 0 to `most` nodes for every request: (most + 1,).

    That is what padding to the largest tree costs, however many nodes the other requests verify.
    """
    nodes = step.batch * np.arange(most + 1)
    return _step_s(step, nodes, nodes + step.batch, tree=True)


def _step_s(step: Step, nodes: np.ndarray, packed: np.ndarray, tree: bool) -> np.ndarray:
    """Seconds of (n,) draft nodes and (n,) packed tokens, as they run."""
    cost, batch = step.cost, step.batch
    context = float(np.add.reduce(step.load.context)) / batch
    device_s = cost.draft_s(batch, context) + cost.verify_curve_s(batch, packed, context)
    return device_s + _host_s(step, nodes, device_s, tree)


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


def _host_s(step: Step, nodes: np.ndarray, device_s: np.ndarray, tree: bool) -> np.ndarray:
    """`HostOverhead.seen_s` for an array of node counts."""
    host = step.cost.host
    ordered = int(step.draft.size.sum())
    work_s = host.node_s * nodes + host.seen_s(
        0, 0.0, requests=step.batch, drafted=True, tree=False, ordered=ordered
    )
    if tree:
        work_s[1:] += host.tree_step_s
    return np.maximum(work_s - device_s, 0.0) if host.overlap else work_s
