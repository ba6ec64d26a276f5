"""Compiled construction of orders, in float64.

Children come from pools, or from the full law softmax(logits + bias[parent]). With
E = exp(logits - max) and exp(bias - max) at hand, Z(u) = E . exp_bias[u] needs no exp per parent,
and the terms of that product are the children's probabilities times Z. A law is computed once per
depth and parent. Its children are found one at a time, from the largest terms of small blocks:
most laws offer one to three.
All in one file, because numba does not recompile a caller when a function elsewhere changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

SMALLEST = 1e-250  # below it the product of two shifted exponentials may have underflowed
SLACK = 1 - 1e-11  # two products further apart differ in the same sense as logits + bias
LOG_CLAMP = np.log1p(-1e-9)  # TreeSpark clamps q to 1 - 1e-9 before the logit
LANES, SEGMENT = 16, 128  # block s * 16 + c is tokens 128 s + c, + 16, ...: maxima lane by lane
PARENT, POOL, MARGINAL, BIASED = range(4)  # kinds of Scores, see `_given`
TICKS = 1 << 32  # heap order by depth, then by push

# exp(x) = 2^k exp(r): adding ROUND leaves k in the lowest bits, k * LN2_HIGH is exact (Cody, Waite)
LOG2_E, ROUND = 1 / math.log(2), 1.5 * 2.0**52
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ABSENT = 32767  # as in orders.table
LOWEST = -708.0  # exp of less is not a normal number: 0

# Functions that allocate nothing need not count references to the arrays of their arguments: for
# the small ones that costs more than their work (650 against 200 ns for a child).
BORROWED = {"cache": True, "nogil": True, "_nrt": False, "error_model": "numpy"}


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

    kind: int
    pool_token: np.ndarray  # (n, D, K) int64
    pool_logq: np.ndarray  # (n, D, K), falling
    logits: np.ndarray  # (n, D, V) float64, or
    single: np.ndarray  # (n, D, V) float32
    exps: np.ndarray  # (D, V) work space: exp(logits - peak) of one anchor, 0 where banned
    largest: np.ndarray  # (slots, blocks) and see Laws
    banned: np.ndarray  # int64 tokens never drafted
    bias: Bias
    anchor_token: np.ndarray  # (n,) int64


class Tree(NamedTuple):
    """Work space of `_grow` for one anchor."""

    law: np.ndarray  # (nodes + 1,) int64 slot of a node's children; nodes from 1, 0 = the anchor
    place: np.ndarray  # (nodes + 1,) int64 place in the static shape + 1
    depth: np.ndarray  # (nodes + 1,) int64
    token: np.ndarray  # (nodes + 1,) int64
    survival: np.ndarray  # (nodes + 1,) log survival
    offered: np.ndarray  # (nodes + 1,) log survival of a node's child in the heap
    above: np.ndarray  # (nodes + 1,) int64 parent as in the output
    on_path: np.ndarray  # (nodes + 1,) bool
    edges: np.ndarray  # (slots, branch) log survival of the edge to a child, nan = not computed
    older: np.ndarray  # (slots,) int64 next slot of the same depth, -1 = none
    newest: np.ndarray  # (D,) int64 first slot of a depth, -1 = none
    keys: np.ndarray  # (nodes + 1,) the heap's keys,
    orders: np.ndarray  # (nodes + 1,) int64 and what decides between equal ones


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

    exps: np.ndarray  # (D, V) exp(logits - peak), 0 where banned
    peak: np.ndarray  # (D,), nan = not derived yet
    row: np.ndarray  # (V,) work space of `_settle`: float64 logits, -inf where banned,
    leaders: np.ndarray  # (branch,) the best maxima of blocks,
    found: np.ndarray  # (V + 1,) int64 tokens that may be among the best children


class Laws(NamedTuple):
    """Children at one depth given one parent token, per slot; best first, as far as needed."""

    token: np.ndarray  # (slots, branch) int64
    logq: np.ndarray  # (slots, branch)
    kids: np.ndarray  # (slots,) int64 children found
    growing: np.ndarray  # (slots,) bool, whether `_next_child` may find more
    depth: np.ndarray  # (slots,) int64, 0-based
    given: np.ndarray  # (slots,) int64 the parent's token
    total: np.ndarray  # (slots,) Z, shifted by both peaks
    largest: np.ndarray  # (slots, blocks) largest term of every block that is no child yet,
    lanes: np.ndarray  # (slots, LANES) and of every lane


def blocks(vocab: int) -> int:
    """Blocks of a row of `vocab` tokens."""
    return -(-vocab // SEGMENT) * LANES


@njit(**BORROWED, fastmath={"contract"})
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


@njit(**BORROWED, fastmath={"contract"})
def _exps(x, peak, out):
    """exp(x - peak) of x (V,), float32 or float64, into out."""
    for v in range(x.shape[0]):
        out[v] = _exp(x[v] - peak)


@njit(**BORROWED, fastmath={"reassoc", "nnan", "nsz"})
def _peak(x):
    """The largest of x (V,), -inf if there is none."""
    peak = x.dtype.type(-np.inf)
    whole = x.shape[0] // SEGMENT
    for s in range(whole):
        for c in range(LANES):
            first = s * SEGMENT + c
            largest = x[first]
            for r in range(1, SEGMENT // LANES):
                largest = max(largest, x[first + r * LANES])
            peak = max(peak, largest)
    for v in range(whole * SEGMENT, x.shape[0]):
        peak = max(peak, x[v])
    return np.float64(peak)


@njit(**BORROWED, fastmath={"reassoc", "nnan", "nsz"})
def _products(x, y, largest, lanes):
    """Product of x and y >= 0 (V,); the largest of its terms in every block and every lane."""
    total = 0.0
    whole = x.shape[0] // SEGMENT
    for s in range(whole):
        for c in range(LANES):
            first = s * SEGMENT + c
            peak = 0.0
            for r in range(SEGMENT // LANES):
                product = x[first + r * LANES] * y[first + r * LANES]
                total += product
                peak = max(peak, product)
            largest[s * LANES + c] = peak
    for b in range(whole * LANES, largest.shape[0]):
        largest[b] = 0.0
    for v in range(whole * SEGMENT, x.shape[0]):
        product, c = x[v] * y[v], v % LANES
        total += product
        largest[whole * LANES + c] = max(largest[whole * LANES + c], product)
    for c in range(LANES):
        lanes[c] = 0.0
    for s in range(largest.shape[0] // LANES):
        for c in range(LANES):
            lanes[c] = max(lanes[c], largest[s * LANES + c])
    return total


@njit(**BORROWED)
def _take(x, y, largest, lanes):
    """(term, token, largest term left): take the largest term out of the maxima.

    Terms taken before were clearly larger, so what is left of a block are its terms up to this.
    """
    lane, term, left = 0, -1.0, -1.0
    for c in range(LANES):
        value = lanes[c]
        left = max(left, min(value, term))
        lane = c if value > term else lane
        term = max(term, value)
    block, most, second = lane, -1.0, 0.0
    for b in range(lane, largest.shape[0], LANES):
        value = largest[b]
        second = max(second, min(value, most))
        block = b if value > most else block
        most = max(most, value)
    token, rest = -1, 0.0
    first = block // LANES * SEGMENT + lane
    for v in range(first, min(first + SEGMENT, x.shape[0]), LANES):
        value = x[v] * y[v]
        if value == term and token < 0:
            token = v
        elif value <= term:
            rest = max(rest, value)
    largest[block] = rest
    lanes[lane] = max(second, rest)
    return term, token, max(left, lanes[lane])


@njit(**BORROWED)
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
    bias.peak[row] = _peak(bias.rows[row])
    _exps(bias.rows[row], bias.peak[row], bias.exp_rows[row])
    return row


@njit(cache=True, nogil=True)
def fill_rows(bias):
    """Compute the rows of as many parent tokens as there is room for, the smallest ids first."""
    for token in range(bias.owner.shape[0]):
        _bias_row(bias, token)


@njit(**BORROWED)
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


@njit(**BORROWED)
def _reach(x, y, largest, floor, found):
    """Places where the product of x and y (V,) reaches `floor` into found; their number."""
    count = 0
    for b in range(largest.shape[0]):
        if largest[b] >= floor:
            first = b // LANES * SEGMENT + b % LANES
            for v in range(first, min(first + SEGMENT, x.shape[0]), LANES):
                found[count] = v
                count += x[v] * y[v] >= floor
    return count


@njit(**BORROWED)
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


@njit(**BORROWED)
def _widen(scores, i, d, row):
    """Logits of anchor i at depth d into row (V,), -inf where banned."""
    for v in range(row.shape[0]):
        row[v] = scores.single[i, d, v] if scores.single.shape[0] > 0 else scores.logits[i, d, v]
    for token in scores.banned:
        row[token] = -np.inf


@njit(**BORROWED)
def _settle(scores, i, block, laws, slot):
    """All children of the slot in the exact sequence of logits + bias, ties to the smaller id.

    The k-th largest maximum of disjoint blocks bounds the k best terms from below. Where terms
    underflow or are too few, every token is looked at, and Z is summed from its definition.
    """
    d, bias, found = laws.depth[slot], scores.bias, block.found
    at = _bias_row(bias, laws.given[slot])
    _widen(scores, i, d, block.row)
    logits, bias_row, exps, exp_row = block.row, bias.rows[at], block.exps[d], bias.exp_rows[at]
    largest = laws.largest[slot]
    total = _products(exps, exp_row, largest, laws.lanes[slot])
    floor = _kth(largest, block.leaders) * SLACK
    exact = total > SMALLEST and floor > SMALLEST
    count = 0
    for j in range(_reach(exps, exp_row, largest, floor if exact else 0.0, found)):
        x = logits[found[j]] + bias_row[found[j]]
        if x > -np.inf:
            count = _insert(x, found[j], count, laws.token, laws.logq, slot)
    log_z = np.log(total) + block.peak[d] + bias.peak[at]
    if not exact:
        total, log_z = 0.0, laws.logq[slot, 0]
        for v in range(logits.shape[0]):
            total += np.exp(logits[v] + bias_row[v] - log_z)
        log_z += np.log(total)
    for c in range(count):
        laws.logq[slot, c] = min(laws.logq[slot, c] - log_z, 0.0)
    laws.kids[slot], laws.growing[slot] = count, False


@njit(**BORROWED)
def _load(scores, i, block, d):
    """Derive what laws at depth d of anchor i need from its logits.

    A banned token may be the peak: any shift will do that lets no product underflow.
    """
    if scores.single.shape[0] > 0:
        block.peak[d] = _peak(scores.single[i, d])
        _exps(scores.single[i, d], block.peak[d], block.exps[d])
    else:
        block.peak[d] = _peak(scores.logits[i, d])
        _exps(scores.logits[i, d], block.peak[d], block.exps[d])
    for token in scores.banned:
        block.exps[d, token] = 0.0


@njit(**BORROWED)
def _law(scores, i, block, laws, d, parent_token, slot):
    """Start a slot: the law at 0-based depth d given the parent, no child found yet."""
    if np.isnan(block.peak[d]):
        _load(scores, i, block, d)
    row = scores.bias.exp_rows[_bias_row(scores.bias, parent_token)]
    laws.total[slot] = _products(block.exps[d], row, laws.largest[slot], laws.lanes[slot])
    laws.depth[slot], laws.given[slot] = d, parent_token
    laws.kids[slot], laws.growing[slot] = 0, True


@njit(**BORROWED)
def _next_child(scores, i, block, laws, slot):
    """Find the slot's next child by its term; all of them by `_settle` if terms cannot tell."""
    row = scores.bias.exp_rows[_bias_row(scores.bias, laws.given[slot])]
    exps, largest, lanes = block.exps[laws.depth[slot]], laws.largest[slot], laws.lanes[slot]
    term, token, left = _take(exps, row, largest, lanes)
    if not term > SMALLEST or left >= term * SLACK:
        _settle(scores, i, block, laws, slot)
        return
    rank = laws.kids[slot]
    laws.token[slot, rank] = token
    laws.logq[slot, rank] = min(np.log(term / laws.total[slot]), 0.0)
    laws.kids[slot] = rank + 1
    laws.growing[slot] = rank + 1 < laws.token.shape[1]


@njit(cache=True, nogil=True)
def _block(scores, branch):
    """Work space for one anchor's logits."""
    depths, vocab = scores.exps.shape
    found = np.empty(vocab + 1, np.int64)
    return Block(scores.exps, np.empty(depths), np.empty(vocab), np.empty(branch), found)


@njit(cache=True, nogil=True)
def _laws(token, logq, largest):
    """Slots whose children go into token and logq (slots, branch)."""
    slots = token.shape[0]
    kids, growing = np.zeros(slots, np.int64), np.zeros(slots, np.bool_)
    depth, given = np.empty(slots, np.int64), np.empty(slots, np.int64)
    lanes = np.empty((largest.shape[0], LANES))
    return Laws(token, logq, kids, growing, depth, given, np.empty(slots), largest, lanes)


@njit(**BORROWED)
def _edge(logq, calibrated, a, b):
    """Log survival of one edge: log q, or log sigmoid(a logit q + b)."""
    if not calibrated:
        return min(logq, 0.0)
    logq = min(logq, LOG_CLAMP)
    z = a * (logq - np.log(-np.expm1(logq))) + b
    return z - np.log1p(np.exp(z)) if z < 0 else -np.log1p(np.exp(-z))


@njit(**BORROWED)
def _edge_of(edges, logq, slot, rank, rule):
    """`_edge` of a slot's child, computed once for all nodes that share the slot."""
    if np.isnan(edges[slot, rank]):
        edges[slot, rank] = _edge(logq[slot, rank], rule.calibrated, rule.a, rule.b)
    return edges[slot, rank]


@njit(**BORROWED)
def _up(keys, orders, at, key, order):
    """Put a candidate into the heap, from its free last slot `at` upwards."""
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] > key or (keys[above] == key and orders[above] < order):
            break
        keys[at], orders[at] = keys[above], orders[above]
        at = above
    keys[at], orders[at] = key, order


@njit(**BORROWED)
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


@njit(**BORROWED)
def _exists(scores, i, block, laws, slot, shape, place, rank):
    """Whether the slot's child of that rank may be emitted; if so, all better ones may."""
    if shape.shape[0] > 0 and (rank >= shape.shape[1] or shape[place, rank] < 0):
        return False
    if rank == laws.kids[slot] and laws.growing[slot]:
        _next_child(scores, i, block, laws, slot)
    return rank < laws.kids[slot] and laws.logq[slot, rank] > -np.inf


@njit(**BORROWED)
def _given(scores, laws, newest, d, token):
    """The token whose bias the children at depth d get below a node of that token, -1 = none.

    BIASED: the greedy chain's; above its end lies the first child of the only law one depth above.
    """
    if scores.kind == MARGINAL:
        return -1
    return laws.token[newest[d - 1], 0] if scores.kind == BIASED and d > 0 else token


@njit(**BORROWED)
def _same_law(slot, parent_token, given, older):
    """The slot of children of `parent_token`, from `slot` on among those of a depth; -1 = none."""
    while slot >= 0 and given[slot] != parent_token:
        slot = older[slot]
    return slot


@njit(**BORROWED)
def _copy_lists(scores, i, laws):
    """The pool as children, one slot per depth; False where it rises."""
    token, logq = scores.pool_token, scores.pool_logq
    falls = True
    for d in range(logq.shape[1]):
        laws.kids[d] = min(logq.shape[2], laws.logq.shape[1])
        for c in range(laws.kids[d]):
            laws.token[d, c], laws.logq[d, c] = token[i, d, c], logq[i, d, c]
            falls &= c == 0 or logq[i, d, c] <= logq[i, d, c - 1]
    return falls


@njit(cache=True, nogil=True)
def grow(scores, rule, rows):
    """Fill the rows of all anchors; False if a list rises."""
    nodes, branch, depths = rule.nodes, rule.branch, rows.hit_rank.shape[1]
    slots = max(nodes, depths)
    token, logq = np.empty((slots, branch), np.int64), np.empty((slots, branch))
    block, laws = _block(scores, branch), _laws(token, logq, scores.largest)
    whole, real = np.zeros((5, nodes + 1), np.int64), np.zeros((3, nodes + 1))
    tree = Tree(
        whole[0],
        whole[1],
        whole[2],
        whole[3],
        real[0],
        real[1],
        np.empty(nodes + 1, np.int64),
        np.empty(nodes + 1, np.bool_),
        np.empty((slots, branch)),
        np.empty(slots, np.int64),
        np.empty(depths, np.int64),
        real[2],
        whole[4],
    )
    for i in range(rows.size.shape[0]):
        if scores.kind == POOL and not _copy_lists(scores, i, laws):
            return False
        _grow(scores, rule, rows, block, laws, tree, i)
    return True


@njit(**BORROWED)
def _grow(scores, rule, rows, block, laws, tree, i):
    """Pop the best candidate of anchor i, emit it, offer its next sibling and its first child.

    Siblings enter the heap one by one, as none can leave before a better one. Equal keys leave in
    the sequence in which all children at once would have been pushed. A static shape names the
    children to offer, and their places in it are the heap's keys.
    """
    nodes, branch, shape = rule.nodes, rule.branch, rule.shape
    static, pooled = shape.shape[0] > 0, scores.kind == POOL
    by_depth = TICKS if rule.ties_by_depth else 0
    hit_rank, realised, peak = rows.hit_rank, rows.realised, block.peak
    kids_token, kids_logq = laws.token, laws.logq
    law, place, depth, token, survival, offered, above, on_path = tree[:8]
    edges, older, newest, keys, orders = tree[8:]
    peak[:], edges[:], newest[:], hit_rank[i] = np.nan, np.nan, -1, ABSENT
    used = started = m = ties = 0
    token[0], on_path[0] = scores.anchor_token[i], realised.shape[1] > 0
    while True:
        d = depth[m]
        if m < nodes and d < rule.depth_cap:
            given = _given(scores, laws, newest, d, token[m])
            slot = d if pooled else _same_law(newest[d], given, laws.given, older)
            if slot < 0:
                slot = started
                started += 1
                _law(scores, i, block, laws, d, given, slot)
                older[slot], newest[d] = newest[d], slot
            law[m] = slot
            if _exists(scores, i, block, laws, slot, shape, place[m], 0):
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
        if _exists(scores, i, block, laws, slot, shape, place[parent], rank):
            x = survival[parent] + _edge_of(edges, kids_logq, slot, rank, rule)
            offered[parent] = min(x, offered[parent])  # rounding in `_edge` could let it rise
            key = -float(shape[place[parent], rank]) if static else offered[parent]
            order = parent * branch + rank + (d + 1) * by_depth
        else:
            used -= 1
            key, order = keys[used], orders[used]
        _down(keys, orders, used, key, order)
    rows.size[i], rows.ties[i] = m, ties
    for k in range(rows.score.shape[1]):  # slices would be copied, for fear of an overlap
        node = k < m
        rows.score[i, k] = survival[k + 1] if node else -np.inf
        rows.depth[i, k] = depth[k + 1] if node else 0
        rows.token[i, k] = token[k + 1] if node else -1
        rows.parent[i, k] = above[k + 1] if node else -1
