"""Compiled construction of orders, in float64.

Children come from lists that ignore the parent (`lists_*`: pools and marginals) or, when
`conditioned`, from the full law softmax(logits + bias[parent]). With E = exp(logits - max) and
exp(bias - max) at hand, log Z(u) = log(E . exp_bias[u]) + both maxima: no exp per parent, and the
largest terms of that product are the best children. A law is computed once per depth and parent.
All in one file, because numba does not recompile a caller when a function elsewhere changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

SMALLEST = 1e-250  # below it the product of two shifted exponentials may have underflowed
SLACK = 1 - 1e-9  # two products further apart differ in the same sense as their logits
LOG_CLAMP = np.log1p(-1e-9)  # TreeSpark clamps q to 1 - 1e-9 before the logit
LANES, SEGMENT = 16, 256  # block s * 16 + c is tokens 256 s + c, + 16, ...: maxima lane by lane
TICKS = 1 << 32  # heap order by depth, then by push

# exp(x) = 2^k exp(r): adding ROUND leaves k in the lowest bits, k * LN2_HIGH is exact (Cody, Waite)
LOG2_E, ROUND = 1 / math.log(2), 1.5 * 2.0**52
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ABSENT = 32767  # as in orders.table
LOWEST = -708.0  # exp of less is not a normal number: 0


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
    logits: np.ndarray  # (n, D, V) float64, overwritten at banned tokens
    exps: np.ndarray  # (D, V) work space: exp(logits - peak) of one anchor
    banned: np.ndarray  # int64 tokens never drafted
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
    realised: np.ndarray  # (n, D) int64, -1 = unknown; (n, 0) = none known


class Block(NamedTuple):
    """What is derived from one anchor's logits, depth by depth as it is reached."""

    exps: np.ndarray  # (D, V) exp(logits - peak)
    peak: np.ndarray  # (D,), nan = not derived yet
    largest: np.ndarray  # (blocks,) work space of `_law`: largest product of every block,
    lanes: np.ndarray  # (LANES,) of every lane,
    leaders: np.ndarray  # (branch,) and the best of those
    found: np.ndarray  # (V + 1,) int64 tokens that may be among the best children
    values: np.ndarray  # (V,) and their logits with the bias


@njit(cache=True, nogil=True, fastmath={"contract"})
def _exp(x):
    """exp of x <= 0 to 2 ulp, without branches, so that loops over it become vector code."""
    shifted = x * LOG2_E + ROUND
    k = shifted - ROUND
    r = x - k * LN2_HIGH - k * LN2_LOW  # |r| <= log(2) / 2
    r2 = r * r
    r4 = r2 * r2
    p = 1.0 + r + r2 * (1 / 2 + r * (1 / 6))  # Taylor: the term left out is below 2e-16
    q = 1 / 24 + r * (1 / 120) + r2 * (1 / 720 + r * (1 / 5040))
    t = 1 / 40320 + r * (1 / 362880) + r2 * (1 / 3628800 + r * (1 / 39916800))
    t += r4 * (1 / 479001600)
    p += r4 * (q + r4 * t)
    bits = np.float64(shifted).view(np.int64)
    power = np.int64((bits + 1023) << 52).view(np.float64)
    return p * power if x > LOWEST else 0.0


@njit(cache=True, nogil=True, fastmath={"contract"})
def _exps(x, i, peak, out):
    """Row i of out: exp(x - peak) of row i of x."""
    for v in range(x.shape[1]):
        out[i, v] = _exp(x[i, v] - peak)


@njit(cache=True, nogil=True, fastmath={"reassoc", "nnan", "nsz"})
def _peak(x, i):
    """The largest of row i of x (., V), -inf if there is none."""
    peak = -np.inf
    whole = x.shape[1] // SEGMENT
    for s in range(whole):
        for c in range(LANES):
            first = s * SEGMENT + c
            largest = -np.inf
            for r in range(SEGMENT // LANES):
                largest = max(largest, x[i, first + r * LANES])
            peak = max(peak, largest)
    for v in range(whole * SEGMENT, x.shape[1]):
        peak = max(peak, x[i, v])
    return peak


@njit(cache=True, nogil=True, fastmath={"reassoc", "nnan", "nsz"})
def _products(x, i, y, j, largest):
    """Product of rows x[i] and y[j] >= 0 (V,), and the largest of its terms in every block."""
    total = 0.0
    whole = x.shape[1] // SEGMENT
    for s in range(whole):
        for c in range(LANES):
            first = s * SEGMENT + c
            peak = 0.0
            for r in range(SEGMENT // LANES):
                product = x[i, first + r * LANES] * y[j, first + r * LANES]
                total += product
                peak = max(peak, product)
            largest[s * LANES + c] = peak
    for b in range(whole * LANES, largest.shape[0]):
        largest[b] = 0.0
    for v in range(whole * SEGMENT, x.shape[1]):
        product = x[i, v] * y[j, v]
        total += product
        at = whole * LANES + v % LANES
        largest[at] = max(largest[at], product)
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
    bias.rows[row] = 0.0
    for k in range(bias.w1.shape[1]):
        factor = bias.w1[token, k]
        for v in range(vocab):
            bias.rows[row, v] += factor * bias.w2[k, v]
    bias.peak[row] = _peak(bias.rows, row)
    _exps(bias.rows, row, bias.peak[row], bias.exp_rows)
    return row


@njit(cache=True, nogil=True)
def fill_rows(bias):
    """Compute the rows of as many parent tokens as there is room for, the smallest ids first."""
    for token in range(bias.owner.shape[0]):
        _bias_row(bias, token)


@njit(cache=True, nogil=True)
def _kth(x, top):
    """The k-th largest of x (m,), k = len(top), 0 if there are fewer; top is work space."""
    last = top.shape[0] - 1
    for c in range(last + 1):
        top[c] = 0.0
    for v in range(x.shape[0]):
        if x[v] > top[last]:
            at = last
            while at > 0 and top[at - 1] < x[v]:
                top[at] = top[at - 1]
                at -= 1
            top[at] = x[v]
    return top[last]


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def _floor(largest, lanes, top):
    """A bound that the k best products reach, from the maxima of disjoint sets; 0 = none known.

    The 8th of 16 lanes is reached by 10 or 11 products of a row, and found faster than in blocks.
    """
    if 2 * top.shape[0] > LANES:
        return _kth(largest, top) * SLACK
    for c in range(LANES):
        lanes[c] = 0.0
    for s in range(largest.shape[0] // LANES):
        for c in range(LANES):
            lanes[c] = max(lanes[c], largest[s * LANES + c])
    return _kth(lanes, top) * SLACK


@njit(cache=True, nogil=True)
def _reach(x, i, y, j, largest, floor, found):
    """Places where the product of rows x[i] and y[j] reaches `floor` into found; their number."""
    count = 0
    for b in range(largest.shape[0]):
        if largest[b] >= floor:
            first = b // LANES * SEGMENT + b % LANES
            for v in range(first, min(first + SEGMENT, x.shape[1]), LANES):
                found[count] = v
                count += x[i, v] * y[j, v] >= floor
    return count


@njit(cache=True, nogil=True)
def _insert(x, v, count, token, logq, slot):
    """Put v, of value x, in its place among the slot's best; ties to the smaller id; new count."""
    last = token.shape[1] - 1
    if count > last:
        if x < logq[slot, last] or (x == logq[slot, last] and v > token[slot, last]):
            return count
        count = last
    at = count
    while at > 0:
        before = logq[slot, at - 1]
        if before > x or (before == x and token[slot, at - 1] < v):
            break
        logq[slot, at], token[slot, at] = before, token[slot, at - 1]
        at -= 1
    logq[slot, at], token[slot, at] = x, v
    return count + 1


@njit(cache=True, nogil=True)
def _best(logits, d, bias_rows, row, found, many, values, token, logq, slot):
    """The best of `many` found tokens by logits + bias into the slot; their count."""
    for j in range(many):  # apart from the sorting, so that the loads overlap
        values[j] = logits[d, found[j]] + bias_rows[row, found[j]]
    count = 0
    for j in range(many):
        count = _insert(values[j], found[j], count, token, logq, slot)
    return count


@njit(cache=True, nogil=True)
def _all_children(logits, d, bias_rows, row, token, logq, slot):
    """`_law` from its definition, where products underflow or are too few; (count, log Z)."""
    count = 0
    for v in range(logits.shape[1]):
        x = logits[d, v] + bias_rows[row, v]
        if x > -np.inf:
            count = _insert(x, v, count, token, logq, slot)
    total = 0.0
    for v in range(logits.shape[1]):
        total += np.exp(logits[d, v] + bias_rows[row, v] - logq[slot, 0])
    return count, logq[slot, 0] + np.log(total)


@njit(cache=True, nogil=True)
def _law(logits, block, bias, d, parent_token, token, logq, slot):
    """Best children at 0-based depth d given the parent into token and logq [slot]; their count."""
    exps, largest, found = block.exps, block.largest, block.found
    row = _bias_row(bias, parent_token)
    total = _products(exps, d, bias.exp_rows, row, largest)
    floor = _floor(largest, block.lanes, block.leaders)
    if total > SMALLEST and floor > SMALLEST:
        many = _reach(exps, d, bias.exp_rows, row, largest, floor, found)
        count = _best(logits, d, bias.rows, row, found, many, block.values, token, logq, slot)
        log_z = np.log(total) + block.peak[d] + bias.peak[row]
    else:
        count, log_z = _all_children(logits, d, bias.rows, row, token, logq, slot)
    for c in range(count):
        logq[slot, c] = min(logq[slot, c] - log_z, 0.0)
    return count


@njit(cache=True, nogil=True)
def _load(logits, block, d, banned):
    """Ban tokens at depth d of one anchor's logits (D, V), and derive what `_law` needs."""
    for token in banned:
        logits[d, token] = -np.inf
    block.peak[d] = _peak(logits, d)
    _exps(logits, d, block.peak[d], block.exps)


@njit(cache=True, nogil=True)
def _block(scores, branch):
    """Work space for one anchor's logits."""
    depths, vocab = scores.exps.shape
    largest, lanes = np.empty(-(-vocab // SEGMENT) * LANES), np.empty(LANES)
    found, values = np.empty(vocab + 1, np.int64), np.empty(vocab)
    return Block(scores.exps, np.empty(depths), largest, lanes, np.empty(branch), found, values)


@njit(cache=True, nogil=True)
def list_children(scores, biased):
    """Fill the lists with children that ignore the parent.

    biased: with the bias of the greedy chain's token at the previous depth, the anchor's first.
    """
    block = _block(scores, scores.lists_token.shape[2])
    for i in range(scores.lists_token.shape[0]):
        token, logq, logits = scores.lists_token[i], scores.lists_logq[i], scores.logits[i]
        parent_token = scores.anchor_token[i] if biased else -1
        for d in range(token.shape[0]):
            _load(logits, block, d, scores.banned)
            count = _law(logits, block, scores.bias, d, parent_token, token, logq, d)
            logq[d, count:] = -np.inf
            if biased and count > 0:
                parent_token = token[d, 0]


@njit(cache=True, nogil=True)
def _edge(logq, calibrated, a, b):
    """Log survival of one edge: log q, or log sigmoid(a logit q + b)."""
    if not calibrated:
        return min(logq, 0.0)
    logq = min(logq, LOG_CLAMP)
    z = a * (logq - np.log(-np.expm1(logq))) + b
    return z - np.log1p(np.exp(z)) if z < 0 else -np.log1p(np.exp(-z))


@njit(cache=True, nogil=True)
def _edge_of(edges, logq, slot, rank, rule):
    """`_edge` of a slot's child, computed once for all nodes that share the slot."""
    if np.isnan(edges[slot, rank]):
        edges[slot, rank] = _edge(logq[slot, rank], rule.calibrated, rule.a, rule.b)
    return edges[slot, rank]


@njit(cache=True, nogil=True)
def _up(keys, orders, at, key, order):
    """Put a candidate into the heap, from its free last slot `at` upwards."""
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] > key or (keys[above] == key and orders[above] < order):
            break
        keys[at], orders[at] = keys[above], orders[above]
        at = above
    keys[at], orders[at] = key, order


@njit(cache=True, nogil=True)
def _down(keys, orders, used, key, order):
    """Put a candidate into the heap of `used` slots in place of its top."""
    at, below = 0, 1
    while below < used:
        if below + 1 < used:
            x, y = keys[below], keys[below + 1]
            below += y > x or (y == x and orders[below + 1] < orders[below])
        if key > keys[below] or (key == keys[below] and order < orders[below]):
            break
        keys[at], orders[at] = keys[below], orders[below]
        at = below
        below = 2 * at + 1
    keys[at], orders[at] = key, order


@njit(cache=True, nogil=True)
def _exists(logq, kids, slot, shape, place, rank):
    """Whether the slot's child of that rank may be emitted; if so, all better ones may."""
    if rank >= kids[slot] or logq[slot, rank] == -np.inf:
        return False
    return shape.shape[0] == 0 or shape[place, rank] >= 0


@njit(cache=True, nogil=True)
def _same_law(slot, parent_token, given, older):
    """The slot of children of `parent_token`, from `slot` on among those of a depth; -1 = none."""
    while slot >= 0 and given[slot] != parent_token:
        slot = older[slot]
    return slot


@njit(cache=True, nogil=True)
def _copy_lists(token, logq, kids, lists_token, lists_logq):
    """Children that ignore the parent, one slot per depth; False where a list rises."""
    falls = True
    for d in range(lists_logq.shape[0]):
        kids[d] = min(lists_logq.shape[1], logq.shape[1])
        for c in range(kids[d]):
            token[d, c], logq[d, c] = lists_token[d, c], lists_logq[d, c]
            falls &= c == 0 or logq[d, c] <= logq[d, c - 1]
    return falls


@njit(cache=True, nogil=True)
def grow(scores, rule, rows):
    """Pop the best candidate, emit it, offer its next sibling and its first child.

    Siblings enter the heap one by one, as none can leave before a better one. Equal keys leave in
    the sequence in which all children at once would have been pushed. A static shape names the
    children to offer, and their places in it are the heap's keys. False if a list rises.
    """
    nodes, branch, shape = rule.nodes, rule.branch, rule.shape
    static, conditioned = shape.shape[0] > 0, scores.conditioned
    by_depth = TICKS if rule.ties_by_depth else 0
    block, bias, hit_rank, realised = (
        _block(scores, branch),
        scores.bias,
        rows.hit_rank,
        rows.realised,
    )
    depths, peak = hit_rank.shape[1], block.peak
    # by node, 1-based, 0 = the anchor; `offered` is the log survival of its child in the heap
    law, place = np.zeros(nodes + 1, np.int64), np.zeros(nodes + 1, np.int64)
    depth, token = np.zeros(nodes + 1, np.int64), np.zeros(nodes + 1, np.int64)
    survival, offered = np.zeros(nodes + 1), np.zeros(nodes + 1)
    above, on_path = np.empty(nodes + 1, np.int64), np.empty(nodes + 1, np.bool_)
    # by slot: children, their number, their parent's token; the depth's slots as linked lists
    slots = max(nodes, depths)
    kids_token, kids_logq = np.empty((slots, branch), np.int64), np.empty((slots, branch))
    edges = np.empty((slots, branch))
    kids, given = np.empty(slots, np.int64), np.empty(slots, np.int64)
    older, newest = np.empty(slots, np.int64), np.empty(depths, np.int64)
    keys, orders = np.empty(nodes + 1), np.empty(nodes + 1, np.int64)  # the heap
    for i in range(rows.size.shape[0]):
        if not conditioned and not _copy_lists(
            kids_token, kids_logq, kids, scores.lists_token[i], scores.lists_logq[i]
        ):
            return False
        peak[:], edges[:], newest[:], hit_rank[i] = np.nan, np.nan, -1, ABSENT
        logits = scores.logits[i if conditioned else 0]
        used = laws = m = ties = 0
        token[0], on_path[0] = scores.anchor_token[i], realised.shape[1] > 0
        while True:
            d = depth[m]
            if m < nodes and d < rule.depth_cap:
                slot = _same_law(newest[d], token[m], given, older) if conditioned else d
                if slot < 0:
                    slot = laws
                    laws += 1
                    if np.isnan(peak[d]):
                        _load(logits, block, d, scores.banned)
                    kids[slot] = _law(logits, block, bias, d, token[m], kids_token, kids_logq, slot)
                    given[slot], older[slot], newest[d] = token[m], newest[d], slot
                law[m] = slot
                if _exists(kids_logq, kids, slot, shape, place[m], 0):
                    offered[m] = survival[m] + _edge_of(edges, kids_logq, slot, 0, rule)
                    key = -float(shape[place[m], 0]) if static else offered[m]
                    _up(keys, orders, used, key, m * branch + (d + 1) * by_depth)
                    used += 1
            if m == nodes or used == 0:
                break
            tick = orders[0] % TICKS
            parent, rank = tick // branch, tick % branch
            m += 1
            slot, d = law[parent], depth[parent]
            survival[m], depth[m], token[m] = offered[parent], d + 1, kids_token[slot, rank]
            if static:
                place[m] = shape[place[parent], rank] + 1
            on_path[m] = on_path[parent] and realised[i, d] == token[m]
            if on_path[m]:
                hit_rank[i, d] = m
            above[m] = parent - 1
            ties += m > 1 and survival[m] == survival[m - 1]
            rank += 1
            if _exists(kids_logq, kids, slot, shape, place[parent], rank):
                x = survival[parent] + _edge_of(edges, kids_logq, slot, rank, rule)
                offered[parent] = min(x, offered[parent])  # rounding in `_edge` could let it rise
                key = -float(shape[place[parent], rank]) if static else offered[parent]
                order = parent * branch + rank + (d + 1) * by_depth
            else:
                used -= 1
                key, order = keys[used], orders[used]
            _down(keys, orders, used, key, order)
        rows.size[i], rows.ties[i] = m, ties
        rows.score[i, :m], rows.score[i, m:] = survival[1 : m + 1], -np.inf
        rows.depth[i, :m], rows.depth[i, m:] = depth[1 : m + 1], 0
        rows.token[i, :m], rows.token[i, m:] = token[1 : m + 1], -1
        rows.parent[i, :m], rows.parent[i, m:] = above[1 : m + 1], -1
    return True
