"""Compiled construction of orders, in float64.

Children come from lists that ignore the parent (`lists_*`: pools and marginals) or, when
`conditioned`, from the full law softmax(logits + bias[parent]). With E = exp(logits - max) and
exp(bias - max) at hand, log Z(u) = log(E . exp_bias[u]) + both maxima: no exp in the inner loop.
All in one file, because numba does not recompile a caller when a function elsewhere changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

SMALLEST = 1e-250  # below it the product of two shifted exponentials may have underflowed
LOG_CLAMP = np.log1p(-1e-9)  # TreeSpark clamps q to 1 - 1e-9 before the logit


class Bias(NamedTuple):
    """Rows of the Markov bias W1 W2^T computed so far, R at most; row R is all zero (no bias)."""

    w1: np.ndarray  # (V, r)
    w2: np.ndarray  # (r, V), transposed
    slot: np.ndarray  # (V,) int64 row of a parent token, -1 = not computed
    owner: np.ndarray  # (R,) int64 parent token of a row, -1 = free
    cursor: np.ndarray  # (1,) int64 row to be (re)used next
    rows: np.ndarray  # (R + 1, V)
    exp_rows: np.ndarray  # (R + 1, V) exp(row - peak)
    peak: np.ndarray  # (R + 1,)


class Scores(NamedTuple):
    """Draft scores of n anchors; the arrays that are not used are empty."""

    lists_token: np.ndarray  # (n, D, K) int64
    lists_logq: np.ndarray  # (n, D, K), falling
    logits: np.ndarray  # (n, D, V), banned tokens -inf
    exps: np.ndarray  # (n, D, V) exp(logits - peak)
    peak: np.ndarray  # (n, D)
    bias: Bias
    anchor_token: np.ndarray  # (n,) int64
    conditioned: bool


class Rule(NamedTuple):
    """How `grow` picks nodes: by score, or in the sequence of a static shape."""

    nodes: int
    branch: int
    depth_cap: int
    ties_by_depth: bool
    calibrated: bool
    a: float
    b: float
    shape: np.ndarray  # (nodes + 1, branch) int64 place of node m - 1's child by rank, -1 = none


class Rows(NamedTuple):
    """Output rows of n anchors (see OrderTable), and the realised tokens to look for."""

    score: np.ndarray
    depth: np.ndarray
    parent: np.ndarray
    token: np.ndarray
    size: np.ndarray
    hit_rank: np.ndarray
    ties: np.ndarray
    realised: np.ndarray  # (n, D) int64, -1 = unknown


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _dot(x, y):
    total = 0.0
    for v in range(x.shape[0]):
        total += x[v] * y[v]
    return total


@njit(cache=True, nogil=True)
def _bias_row(bias, token):
    """Row of `token`, computed if need be in place of the oldest; token -1: the zero row."""
    if token < 0:
        return bias.owner.shape[0]
    if bias.slot[token] >= 0:
        return bias.slot[token]
    row = bias.cursor[0]
    bias.cursor[0] = (row + 1) % bias.owner.shape[0]
    if bias.owner[row] >= 0:
        bias.slot[bias.owner[row]] = -1
    bias.owner[row] = token
    bias.slot[token] = row
    vocab = bias.rows.shape[1]
    for v in range(vocab):
        bias.rows[row, v] = 0.0
    for k in range(bias.w1.shape[1]):
        factor = bias.w1[token, k]
        for v in range(vocab):
            bias.rows[row, v] += factor * bias.w2[k, v]
    peak = -np.inf
    for v in range(vocab):
        peak = max(peak, bias.rows[row, v])
    bias.peak[row] = peak
    for v in range(vocab):
        bias.exp_rows[row, v] = np.exp(bias.rows[row, v] - peak)
    return row


@njit(cache=True, nogil=True)
def _log_z(logits, exps, peak, bias_row, exp_bias, bias_peak):
    """Log normaliser of logits + bias (V,)."""
    product = _dot(exps, exp_bias)
    if product > SMALLEST:
        return np.log(product) + peak + bias_peak
    peak = -np.inf
    for v in range(logits.shape[0]):
        peak = max(peak, logits[v] + bias_row[v])
    total = 0.0
    for v in range(logits.shape[0]):
        total += np.exp(logits[v] + bias_row[v] - peak)
    return peak + np.log(total)


@njit(cache=True, nogil=True)
def _best(logits, bias_row, token, value):
    """The largest logits + bias (V,) into token and value (k,), ties to the smaller id; a count."""
    keep = value.shape[0]
    count = 0
    last = -np.inf
    for v in range(logits.shape[0]):
        x = logits[v] + bias_row[v]
        if x > last:
            at = count if count < keep else keep - 1
            while at > 0 and value[at - 1] < x:
                value[at] = value[at - 1]
                token[at] = token[at - 1]
                at -= 1
            value[at] = x
            token[at] = v
            count = min(count + 1, keep)
            if count == keep:
                last = value[keep - 1]
    return count


@njit(cache=True, nogil=True)
def _children(scores, i, d, parent_token, token, logq):
    """Best children at 0-based depth d given the parent, into token and logq (k,); their count."""
    row = _bias_row(scores.bias, parent_token)
    logits, bias_row = scores.logits[i, d], scores.bias.rows[row]
    count = _best(logits, bias_row, token, logq)
    exps, exp_bias = scores.exps[i, d], scores.bias.exp_rows[row]
    log_z = _log_z(logits, exps, scores.peak[i, d], bias_row, exp_bias, scores.bias.peak[row])
    for c in range(count):
        logq[c] = min(logq[c] - log_z, 0.0)
    return count


@njit(cache=True, nogil=True)
def list_children(scores, biased):
    """Fill the lists with children that ignore the parent.

    biased: with the bias of the greedy chain's token at the previous depth, the anchor's first.
    """
    token, logq = scores.lists_token, scores.lists_logq
    for i in range(token.shape[0]):
        parent_token = scores.anchor_token[i] if biased else -1
        for d in range(token.shape[1]):
            count = _children(scores, i, d, parent_token, token[i, d], logq[i, d])
            logq[i, d, count:] = -np.inf
            if biased and count > 0:
                parent_token = token[i, d, 0]


@njit(cache=True, nogil=True)
def _edge(logq, calibrated, a, b):
    """Log survival of one edge: log q, or log sigmoid(a logit q + b)."""
    if not calibrated:
        return min(logq, 0.0)
    logq = min(logq, LOG_CLAMP)
    z = a * (logq - np.log(-np.expm1(logq))) + b
    return z - np.log1p(np.exp(z)) if z < 0 else -np.log1p(np.exp(-z))


@njit(cache=True, nogil=True)
def _before(x, y, key, depth, by_depth):
    """Heap order of candidates, whose index is their push tick."""
    if key[x] != key[y]:
        return key[x] > key[y]
    if by_depth and depth[x] != depth[y]:
        return depth[x] < depth[y]
    return x < y


@njit(cache=True, nogil=True)
def _push(heap, used, item, key, depth, by_depth):
    at = used
    while at > 0:
        above = (at - 1) >> 1
        if not _before(item, heap[above], key, depth, by_depth):
            break
        heap[at] = heap[above]
        at = above
    heap[at] = item


@njit(cache=True, nogil=True)
def _pop(heap, used, key, depth, by_depth):
    best = heap[0]
    item = heap[used - 1]
    at = 0
    while 2 * at + 1 < used - 1:
        below = 2 * at + 1
        if below + 1 < used - 1 and _before(heap[below + 1], heap[below], key, depth, by_depth):
            below += 1
        if not _before(heap[below], item, key, depth, by_depth):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = item
    return best


@njit(cache=True, nogil=True)
def _same_law(m, depth, token, law):
    """Slot of an earlier node's children equal to node m's: same depth, same token; or -1."""
    for other in range(m):
        if token[other] == token[m] and depth[other] == depth[m]:
            return law[other + 1]
    return -1


@njit(cache=True, nogil=True)
def grow(scores, rule, rows):
    """Pop the best candidate, emit it, push its children; slot m + 1 is node m's, 0 the anchor's.

    A static shape names the children to push, and their places in it are the heap's keys.
    """
    static = rule.shape.shape[0] > 0
    pool = scores.lists_logq.shape[2]
    room = rule.branch * rule.nodes
    key, survival, place = np.empty(room), np.empty(room), np.empty(room, np.int64)
    depth, parent = np.empty(room, np.int64), np.empty(room, np.int64)
    token, heap = np.empty(room, np.int64), np.empty(room, np.int64)
    kids_token = np.empty((rule.nodes + 1, rule.branch), np.int64)
    kids_logq = np.empty((rule.nodes + 1, rule.branch))
    kids, law = np.empty(rule.nodes + 1, np.int64), np.empty(rule.nodes + 1, np.int64)
    node_token, node_depth = np.empty(rule.nodes, np.int64), np.empty(rule.nodes, np.int64)
    on_path = np.empty(rule.nodes, np.bool_)
    for i in range(rows.size.shape[0]):
        used = ticks = 0
        law[:] = -1
        m = -1  # the node whose children are pushed
        above, below, at_place, parent_token = 0.0, 1, -1, scores.anchor_token[i]
        while True:
            left = rule.nodes - (m + 1)
            if left > 0 and below <= rule.depth_cap:
                slot = _same_law(m, node_depth, node_token, law) if scores.conditioned else -1
                if slot < 0:
                    slot = m + 1
                    if scores.conditioned:
                        kids[slot] = _children(
                            scores, i, below - 1, parent_token, kids_token[slot], kids_logq[slot]
                        )
                    else:
                        kids[slot] = min(pool, rule.branch)
                        for c in range(kids[slot]):
                            kids_token[slot, c] = scores.lists_token[i, below - 1, c]
                            kids_logq[slot, c] = scores.lists_logq[i, below - 1, c]
                law[m + 1] = slot
                # a child behind `left` better siblings can no longer be emitted
                count = kids[slot] if static else min(kids[slot], left)
                for c in range(count):
                    where = rule.shape[at_place + 1, c] if static else 0
                    if where < 0 or kids_logq[slot, c] == -np.inf:
                        continue
                    edge = _edge(kids_logq[slot, c], rule.calibrated, rule.a, rule.b)
                    survival[ticks] = above + edge
                    key[ticks] = -where if static else survival[ticks]
                    place[ticks], depth[ticks], parent[ticks] = where, below, m
                    token[ticks] = kids_token[slot, c]
                    _push(heap, used, ticks, key, depth, rule.ties_by_depth)
                    ticks += 1
                    used += 1
            if left == 0 or used == 0:
                break
            best = _pop(heap, used, key, depth, rule.ties_by_depth)
            used -= 1
            m += 1
            above, below, at_place = survival[best], depth[best] + 1, place[best]
            parent_token = node_token[m] = token[best]
            node_depth[m] = depth[best]
            rows.score[i, m], rows.depth[i, m] = above, depth[best]
            rows.parent[i, m], rows.token[i, m] = parent[best], token[best]
            rows.ties[i] += m > 0 and rows.score[i, m - 1] == above
            on_path[m] = parent[best] < 0 or on_path[parent[best]]
            on_path[m] &= rows.realised[i, depth[best] - 1] == token[best]
            if on_path[m]:
                rows.hit_rank[i, depth[best] - 1] = m + 1
        rows.size[i] = m + 1
