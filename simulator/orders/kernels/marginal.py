"""The compiled heap of `MarginalOrder`."""

from __future__ import annotations

import numpy as np

from simulator.compiling import njit


@njit(cache=True, nogil=True)
def pop_all(logq, cap, score, depth, parent, rank):
    """Fill (n, nodes) score, depth (1-based), parent and 0-based rank from logq (n, D, branch)."""
    nodes, branch = score.shape[1], logq.shape[2]
    limit = nodes + 1  # a pop takes one candidate away and offers two
    path = np.empty((2 * limit, cap), np.int64)  # ranks along the path of a candidate
    length, above = np.empty(2 * limit, np.int64), np.empty(2 * limit, np.int64)
    value, heap = np.empty(2 * limit), np.empty(2 * limit, np.int64)
    for i in range(len(logq)):
        offered = used = 0
        if logq[i, 0, 0] > -np.inf:
            path[0, 0], length[0], above[0], value[0] = 0, 1, -1, logq[i, 0, 0]
            used = _push(heap, used, offered, value, path, length)
            offered += 1
        for m in range(nodes):
            if used == 0:
                break
            top = heap[0]
            used -= 1
            if used:
                _sink(heap, used, heap[used], value, path, length)
            d = length[top]
            r = path[top, d - 1]
            score[i, m], depth[i, m], parent[i, m], rank[i, m] = value[top], d, above[top], r
            if r + 1 < branch and logq[i, d - 1, r + 1] > -np.inf:
                start = score[i, above[top]] if above[top] >= 0 else 0.0
                path[offered, : d - 1] = path[top, : d - 1]
                path[offered, d - 1] = r + 1
                length[offered], above[offered] = d, above[top]
                value[offered] = start + logq[i, d - 1, r + 1]
                used = _push(heap, used, offered, value, path, length)
                offered += 1
            if d < cap and logq[i, d, 0] > -np.inf:
                path[offered, :d] = path[top, :d]
                path[offered, d] = 0
                length[offered], above[offered] = d + 1, m
                value[offered] = value[top] + logq[i, d, 0]
                used = _push(heap, used, offered, value, path, length)
                offered += 1


@njit(cache=True, nogil=True)
def _before(a, b, value, path, length):
    """Whether candidate a leaves before b: higher value, then the smaller tuple of ranks."""
    if value[a] != value[b]:
        return value[a] > value[b]
    for k in range(min(length[a], length[b])):
        if path[a, k] != path[b, k]:
            return path[a, k] < path[b, k]
    return length[a] < length[b]


@njit(cache=True, nogil=True)
def _push(heap, used, new, value, path, length):
    at = used
    while at > 0 and _before(new, heap[(at - 1) >> 1], value, path, length):
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = new
    return used + 1


@njit(cache=True, nogil=True)
def _sink(heap, used, moved, value, path, length):
    """Put `moved` in place of the top of a heap of `used`."""
    at, below = 0, 1
    while below < used:
        if below + 1 < used and _before(heap[below + 1], heap[below], value, path, length):
            below += 1
        if not _before(heap[below], moved, value, path, length):
            break
        heap[at] = heap[below]
        at = below
        below = 2 * at + 1
    heap[at] = moved
