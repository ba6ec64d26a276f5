"""Compiled construction of orders, in float64.

Children come from pools, or from the full law softmax(logits + bias[parent]). With
E = exp(logits - max) and exp(bias - max) at hand, Z(u) = E . exp_bias[u] needs no exp per parent,
and the terms of that product are the children's probabilities times Z. A law is computed once per
depth and parent. Its children are found one at a time, from the largest terms of small blocks, and
only as they come first: until then, the largest term left says what the next one will score.
All in one file, because numba does not recompile a caller when a function elsewhere changes; of
`vectors.py`, the content is written below, so that this file changes with it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from simulator.compiling import njit
from simulator.orders.kernels.simd import (
    add,
    array_at,
    exponent,
    first_bit,
    fma,
    larger,
    largest_of,
    load,
    mul,
    prefetch,
    replace_equal,
    splat,
    store,
    sub,
    sum_of,
    where_equal,
)

VECTORS = "86b94f12a61be6de"  # sha256 of vectors.py, its first digits: a test compares
SMALLEST = 1e-250  # below it the product of two shifted exponentials may have underflowed
SLACK = 1 - 1e-11  # two products further apart differ in the same sense as logits + bias
LOG_CLAMP = np.log1p(-1e-9)  # TreeSpark clamps q to 1 - 1e-9 before the logit
LANES, SEGMENT = 16, 128  # block 16 s + c is tokens 128 s + c, + 16, ... of segment s
TIE = 1e-10  # log of a term over Z, and the same from logits + bias, are closer than that
NONE, FOUND, BOUND = range(3)  # what is known of a child, see `_offer`
PARENT, POOL, MARGINAL, BIASED = range(4)  # kinds of Scores, see `_given`
NUMBERS = 12  # of a plan, before its addresses
DEPTH_BIT, PARENT_BIT = 30, 15  # heap order by depth, then by push: parent, then rank
LOW = (1 << PARENT_BIT) - 1  # a division would take longer than all else that is done with it

# exp(x) = 2^k exp(r), |r| <= log(2) / 2: adding ROUND leaves k + 1023 in the lowest bits.
# exp(r) = 1 + r + r^2 (C[0] + C[1] r + ...), by interpolation at Chebyshev nodes: off by 2e-17
LOG2_E, LN2, ROUND = 1 / math.log(2), math.log(2), 1.5 * 2.0**52 + 1023
C = (
    0.5,
    0.16666666666666669,
    0.04166666666662399,
    0.008333333333330051,
    0.0013888888917281794,
    0.00019841269863105968,
    2.480152119021773e-05,
    2.7557268378684192e-06,
    2.7620138719732994e-07,
    2.5100424157005067e-08,
)
ABSENT = 32767  # as in orders.table
LOWEST = -708.0  # exp of less is not a normal number: taken as this

# Functions that allocate nothing need not count references to the arrays of their arguments: for
# the small ones that costs more than their work (650 against 200 ns for a child).
BORROWED = {"cache": True, "nogil": True, "_nrt": False, "error_model": "numpy"}
# A call copies every array of its tuples (200 ns): what is done per law or child has none.
INLINED = {"inline": "always", **BORROWED}


class Bias(NamedTuple):
    """Rows of the Markov bias W1 W2^T computed so far, R at most; row R is all zero (no bias)."""

    w1: np.ndarray  # (V, r)
    w2: np.ndarray  # (r, V), transposed
    slot: np.ndarray  # (V,) int64 row of a parent token, -1 = not computed
    owner: np.ndarray  # (R,) int64 parent token of a row, -1 = free
    cursor: np.ndarray  # (1,) int64 row to be (re)used next
    rows: np.ndarray  # (R + 1, V)
    exp_rows: np.ndarray  # (R + 1, W) exp(row - peak); W = V up to whole segments, see `padded`
    peak: np.ndarray  # (R + 1,)


class Scores(NamedTuple):
    """Draft scores of n anchors; the arrays that are not used are empty."""

    kind: int
    pool_token: np.ndarray  # (n, D, K) int64
    pool_logq: np.ndarray  # (n, D, K), falling
    logits: np.ndarray  # (n, D, V) float64, or
    single: np.ndarray  # (n, D, V) float32
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
    offered: np.ndarray  # (nodes + 1,) log survival of a node's last child that was found
    bound: np.ndarray  # (nodes + 1,) bool, whether a node's child in the heap is not found yet
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
    floor: float  # log survival below which nothing is emitted
    shape: np.ndarray  # (nodes + 1, branch) int64 place of node m - 1's child by rank, -1 = none


class Rows(NamedTuple):
    """Output rows of n anchors (see OrderTable), and the realised tokens to look for.

    One after the other in `out` of `grow`, without gaps; the largest items come first.
    """

    score: np.ndarray  # (n, nodes) float64
    size: np.ndarray  # (n,) int32
    ties: np.ndarray  # (n,) int32
    token: np.ndarray  # (n, nodes) int32
    hit_rank: np.ndarray  # (n, D) int16
    parent: np.ndarray  # (n, nodes) int16
    depth: np.ndarray  # (n, nodes) uint8
    realised: np.ndarray  # (n, D) int64, -1 = unknown; (n, 0) = none known


class Block(NamedTuple):
    """What is derived from one anchor's logits, depth by depth as it is reached."""

    exps: np.ndarray  # (D, W) exp(logits - peak), 0 where banned and from V on
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
    left: np.ndarray  # (slots,) largest term that is no child yet
    depth: np.ndarray  # (slots,) int64, 0-based
    given: np.ndarray  # (slots,) int64 the parent's token
    total: np.ndarray  # (slots,) Z, shifted by both peaks
    largest: np.ndarray  # (slots, blocks) largest term of every block that is no child yet,
    peaks: np.ndarray  # (slots, segments up to whole vectors) and of every segment


def padded(vocab: int) -> int:
    """`vocab` up to whole segments."""
    return -(-vocab // SEGMENT) * SEGMENT


def blocks(vocab: int) -> int:
    """Blocks of a row of `vocab` tokens."""
    return padded(vocab) // SEGMENT * LANES


@njit(**BORROWED)
def _power_of_e(x):
    """exp of x <= 0, four at once, to 2 ulp + |x| / 30 ulp."""
    x = larger(x, splat(LOWEST))
    shifted = fma(x, splat(LOG2_E), splat(ROUND))
    r = fma(sub(shifted, splat(ROUND)), splat(-LN2), x)
    r2 = mul(r, r)
    r4 = mul(r2, r2)
    p = fma(r2, fma(r, splat(C[1]), splat(C[0])), add(r, splat(1.0)))
    q = fma(r2, fma(r, splat(C[5]), splat(C[4])), fma(r, splat(C[3]), splat(C[2])))
    t = fma(r2, fma(r, splat(C[9]), splat(C[8])), fma(r, splat(C[7]), splat(C[6])))
    return mul(fma(r4, fma(r4, t, q), p), exponent(shifted))


@njit(**BORROWED)
def _exps(x, peak, out, after):
    """exp(x - peak) of x (V,), float32 or float64, into the first V of out.

    after (V,) is what will be read next: it comes nearer meanwhile.
    """
    shift, whole = splat(peak), x.shape[0] // LANES * LANES
    for v in range(0, whole, LANES):  # four independent chains keep the processor busy
        a, b = sub(load(x, v), shift), sub(load(x, v + 4), shift)
        c, d = sub(load(x, v + 8), shift), sub(load(x, v + 12), shift)
        prefetch(after, v)
        store(out, v, _power_of_e(a))
        store(out, v + 4, _power_of_e(b))
        store(out, v + 8, _power_of_e(c))
        store(out, v + 12, _power_of_e(d))
    for v in range(whole, x.shape[0]):
        out[v] = math.exp(max(x[v] - peak, LOWEST))


@njit(**BORROWED)
def _peak(x):
    """The largest of x (V,), -inf if there is none."""
    a = b = c = d = splat(-np.inf)
    whole = x.shape[0] // LANES * LANES
    for v in range(0, whole, LANES):
        a, b = larger(load(x, v), a), larger(load(x, v + 4), b)
        c, d = larger(load(x, v + 8), c), larger(load(x, v + 12), d)
    peak = largest_of(larger(larger(a, b), larger(c, d)))
    for v in range(whole, x.shape[0]):
        peak = max(peak, np.float64(x[v]))
    return peak


@njit(**BORROWED)
def _products(x, y, largest, peaks):
    """(product of x and y >= 0 (W,), its largest term); the largest of every block and segment."""
    sum0 = sum1 = sum2 = sum3 = most = splat(0.0)
    segments = x.shape[0] // SEGMENT
    for s in range(segments):
        a = b = c = d = splat(0.0)
        for v in range(s * SEGMENT, (s + 1) * SEGMENT, LANES):
            term = mul(load(x, v), load(y, v))
            sum0, a = add(sum0, term), larger(a, term)
            term = mul(load(x, v + 4), load(y, v + 4))
            sum1, b = add(sum1, term), larger(b, term)
            term = mul(load(x, v + 8), load(y, v + 8))
            sum2, c = add(sum2, term), larger(c, term)
            term = mul(load(x, v + 12), load(y, v + 12))
            sum3, d = add(sum3, term), larger(d, term)
        block = s * LANES
        store(largest, block, a)
        store(largest, block + 4, b)
        store(largest, block + 8, c)
        store(largest, block + 12, d)
        peak = larger(larger(a, b), larger(c, d))
        most = larger(most, peak)
        peaks[s] = largest_of(peak)
    for s in range(segments, peaks.shape[0]):
        peaks[s] = -1.0
    return sum_of(add(add(sum0, sum1), add(sum2, sum3))), largest_of(most)


@njit(**BORROWED)
def _take(x, y, largest, peaks, term):
    """(token, largest term left): take the largest term out of the maxima.

    Terms taken before were clearly larger, so what is left of a block are its terms up to this.
    Where maxima are equal, the term itself is said to be left.
    """
    wanted, others, tied, segment = splat(term), splat(0.0), 0, -1
    for s in range(0, peaks.shape[0], 4):
        peak = load(peaks, s)
        bits = where_equal(peak, wanted)
        others = larger(others, replace_equal(peak, wanted, splat(0.0)))
        tied |= (bits & (bits - 1)) | (bits if segment >= 0 else 0)
        segment = s + first_bit(bits) if bits else segment
    block = segment * LANES
    a, b = load(largest, block), load(largest, block + 4)
    c, d = load(largest, block + 8), load(largest, block + 12)
    bits = where_equal(a, wanted) | where_equal(b, wanted) << 4
    bits |= where_equal(c, wanted) << 8 | where_equal(d, wanted) << 12
    tied |= bits & (bits - 1)
    lane = first_bit(bits)
    token, rest = -1, 0.0
    first = segment * SEGMENT + lane
    for v in range(first, first + SEGMENT, LANES):
        value = x[v] * y[v]
        if value == term and token < 0:
            token = v
        elif value <= term:
            rest = max(rest, value)
    left = splat(rest)
    a, b = replace_equal(a, wanted, left), replace_equal(b, wanted, left)
    c, d = replace_equal(c, wanted, left), replace_equal(d, wanted, left)
    peak = largest_of(larger(larger(a, b), larger(c, d)))
    largest[block + lane], peaks[segment] = rest, peak
    return token, term if tied else max(peak, largest_of(others))


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
    _exps(bias.rows[row], bias.peak[row], bias.exp_rows[row], bias.rows[row])
    return row


@njit(**INLINED)
def _row_at(bias, token):
    """`_bias_row`, where most rows are known."""
    at = bias.slot[token] if token >= 0 else bias.owner.shape[0]
    return at if at >= 0 else _bias_row(bias, token)


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
    """Places where the product of x and y reaches `floor` into found (V + 1,); their number."""
    count, vocab = 0, found.shape[0] - 1
    for b in range(largest.shape[0]):
        if largest[b] >= floor:
            first = b // LANES * SEGMENT + b % LANES
            for v in range(first, min(first + SEGMENT, vocab), LANES):
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
    total, _ = _products(exps, exp_row, largest, laws.peaks[slot])
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
    after = min(d + 1, block.peak.shape[0] - 1)
    if scores.single.shape[0] > 0:
        block.peak[d] = _peak(scores.single[i, d])
        _exps(scores.single[i, d], block.peak[d], block.exps[d], scores.single[i, after])
    else:
        block.peak[d] = _peak(scores.logits[i, d])
        _exps(scores.logits[i, d], block.peak[d], block.exps[d], scores.logits[i, after])
    for token in scores.banned:
        block.exps[d, token] = 0.0


@njit(**INLINED)
def _law(scores, i, block, laws, edges, d, parent_token, slot):
    """Start a slot: the law at 0-based depth d given the parent, no child found yet."""
    for rank in range(edges.shape[1]):
        edges[slot, rank] = np.nan
    if np.isnan(block.peak[d]):
        _load(scores, i, block, d)
    row = scores.bias.exp_rows[_row_at(scores.bias, parent_token)]
    total, left = _products(block.exps[d], row, laws.largest[slot], laws.peaks[slot])
    laws.total[slot], laws.left[slot] = total, left
    laws.depth[slot], laws.given[slot] = d, parent_token
    laws.kids[slot], laws.growing[slot] = 0, True
    if not left > SMALLEST:
        _settle(scores, i, block, laws, slot)


@njit(**INLINED)
def _next_child(scores, i, block, laws, slot, edges):
    """Find the slot's next child by its term; all of them by `_settle` if terms cannot tell."""
    row = scores.bias.exp_rows[_row_at(scores.bias, laws.given[slot])]
    exps, term, kid = block.exps[laws.depth[slot]], laws.left[slot], laws.kids[slot]
    found, left = _take(exps, row, laws.largest[slot], laws.peaks[slot], term)
    growing = kid + 1 < laws.token.shape[1]
    if left >= term * SLACK:
        _settle(scores, i, block, laws, slot)
        edges[slot, kid] = np.nan
    elif growing and not left > SMALLEST:
        _settle(scores, i, block, laws, slot)
    else:
        laws.token[slot, kid], laws.left[slot] = found, left
        if np.isnan(edges[slot, kid]):  # otherwise its bound was its own
            laws.logq[slot, kid] = min(np.log(term / laws.total[slot]), 0.0)
        laws.kids[slot], laws.growing[slot] = kid + 1, growing


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


@njit(**INLINED)
def _unfound(laws, slot, rank):
    """Whether `_next_child` must find the slot's child of that rank."""
    return rank == laws.kids[slot] and laws.growing[slot]


@njit(**INLINED)
def _offer(laws, edges, slot, rank, above, limit, rule):
    """(log survival, FOUND) of the slot's child of that rank below a node of log survival `above`.

    Or (its bound, BOUND) where the largest term left is all that is known: right unless `_settle`
    will find the children, and then too small by less than TIE of log q. Its edge falls by at most
    2 a per unit, as two children are almost equal then, and q is at most about a half. (-inf, NONE)
    if there is no such child. At most `limit`: rounding in `_edge` could let a sibling rise.
    """
    if _unfound(laws, slot, rank):
        if np.isnan(edges[slot, rank]):
            laws.logq[slot, rank] = min(np.log(laws.left[slot] / laws.total[slot]), 0.0)
        x = above + _edge_of(edges, laws.logq, slot, rank, rule)
        return x + TIE * (1 + 2 * rule.a), BOUND
    if rank >= laws.kids[slot] or laws.logq[slot, rank] == -np.inf:
        return -np.inf, NONE
    return min(above + _edge_of(edges, laws.logq, slot, rank, rule), limit), FOUND


@njit(**INLINED)
def _given(scores, laws, newest, d, token):
    """The token whose bias the children at depth d get below a node of that token, -1 = none.

    BIASED: the greedy chain's; above its end lies the first child of the only law one depth above.
    """
    if scores.kind == MARGINAL:
        return -1
    return laws.token[newest[d - 1], 0] if scores.kind == BIASED and d > 0 else token


@njit(**INLINED)
def _same_law(slot, parent_token, given, older):
    """The slot of children of `parent_token`, from `slot` on among those of a depth; -1 = none."""
    while slot >= 0 and given[slot] != parent_token:
        slot = older[slot]
    return slot


@njit(**BORROWED)
def _copy_lists(scores, i, laws, edges):
    """The pool as children, one slot per depth; False where it rises."""
    token, logq = scores.pool_token, scores.pool_logq
    falls = True
    for d in range(logq.shape[1]):
        laws.kids[d], laws.growing[d] = min(logq.shape[2], laws.logq.shape[1]), False
        for c in range(laws.kids[d]):
            laws.token[d, c], laws.logq[d, c] = token[i, d, c], logq[i, d, c]
            edges[d, c] = np.nan
            falls &= c == 0 or logq[i, d, c] <= logq[i, d, c - 1]
    return falls


@njit(cache=True, nogil=True)
def grow(plan, pool_token, pool_logq, logits, single, anchor_token, realised, out):
    """Fill `out` for all anchors; False if a list rises.

    plan (NUMBERS + addresses,) int64: `orders.build.BuildPlan.numbers`. out: bytes for the Rows. An
    array costs 100 ns to be passed and 200 ns to be allocated here: hence the addresses.
    """
    kind, nodes, branch, depth_cap, depths = plan[0], plan[1], plan[2], plan[3], plan[4]
    vocab, rank, kept, bans, places = plan[7], plan[8], plan[9], plan[10], plan[11]
    wide, segments = -(-vocab // SEGMENT) * SEGMENT, -(-vocab // SEGMENT)
    slots, at = max(nodes, depths), plan[NUMBERS:]
    n = max(pool_logq.shape[0], logits.shape[0], single.shape[0])  # two of them are empty
    bias = Bias(
        array_at(at[0], (vocab, rank), np.float64),
        array_at(at[1], (rank, vocab), np.float64),
        array_at(at[2], (vocab,), np.int64),
        array_at(at[3], (kept,), np.int64),
        array_at(at[4], (1,), np.int64),
        array_at(at[5], (kept + 1, vocab), np.float64),
        array_at(at[6], (kept + 1, wide), np.float64),
        array_at(at[7], (kept + 1,), np.float64),
    )
    banned = array_at(at[8], (bans,), np.int64)
    real = array_at(at[9], (3,), np.float64)
    shape = array_at(at[10], (places, branch), np.int64)
    limits = (nodes, branch, depth_cap, plan[5] > 0, plan[6] > 0)
    rule = Rule(*limits, real[0], real[1], real[2], shape)
    block = Block(
        array_at(at[11], (depths, wide), np.float64),
        array_at(at[12], (depths,), np.float64),
        array_at(at[13], (vocab,), np.float64),
        array_at(at[14], (branch,), np.float64),
        array_at(at[15], (vocab + 1,), np.int64),
    )
    laws = Laws(
        array_at(at[16], (slots, branch), np.int64),
        array_at(at[17], (slots, branch), np.float64),
        array_at(at[18], (slots,), np.int64),
        array_at(at[19], (slots,), np.bool_),
        array_at(at[20], (slots,), np.float64),
        array_at(at[21], (slots,), np.int64),
        array_at(at[22], (slots,), np.int64),
        array_at(at[23], (slots,), np.float64),
        array_at(at[24], (slots, segments * LANES), np.float64),
        array_at(at[25], (slots, -(-segments // 4) * 4), np.float64),
    )
    tree = Tree(
        array_at(at[26], (nodes + 1,), np.int64),
        array_at(at[27], (nodes + 1,), np.int64),
        array_at(at[28], (nodes + 1,), np.int64),
        array_at(at[29], (nodes + 1,), np.int64),
        array_at(at[30], (nodes + 1,), np.float64),
        array_at(at[31], (nodes + 1,), np.float64),
        array_at(at[32], (nodes + 1,), np.bool_),
        array_at(at[33], (nodes + 1,), np.int64),
        array_at(at[34], (nodes + 1,), np.bool_),
        array_at(at[35], (slots, branch), np.float64),
        array_at(at[36], (slots,), np.int64),
        array_at(at[37], (depths,), np.int64),
        array_at(at[38], (nodes + 1,), np.float64),
        array_at(at[39], (nodes + 1,), np.int64),
    )
    first = out.ctypes.data
    rows = Rows(
        array_at(first, (n, nodes), np.float64),
        array_at(first + 8 * n * nodes, (n,), np.int32),
        array_at(first + n * (8 * nodes + 4), (n,), np.int32),
        array_at(first + n * (8 * nodes + 8), (n, nodes), np.int32),
        array_at(first + n * (12 * nodes + 8), (n, depths), np.int16),
        array_at(first + n * (12 * nodes + 8 + 2 * depths), (n, nodes), np.int16),
        array_at(first + n * (14 * nodes + 8 + 2 * depths), (n, nodes), np.uint8),
        realised,
    )
    scores = Scores(kind, pool_token, pool_logq, logits, single, banned, bias, anchor_token)
    for i in range(n):
        if kind == POOL and not _copy_lists(scores, i, laws, tree.edges):
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
    nodes, shape, floor = rule.nodes, rule.shape, rule.floor
    static, pooled = shape.shape[0] > 0, scores.kind == POOL
    by_depth = 1 << DEPTH_BIT if rule.ties_by_depth else 0
    hit_rank, realised, peak = rows.hit_rank, rows.realised, block.peak
    kids_token = laws.token
    law, place, depth, token, survival, offered, bound, above, on_path = tree[:9]
    edges, older, newest, keys, orders = tree[9:]
    peak[:], newest[:], hit_rank[i] = np.nan, -1, ABSENT
    used = started = m = ties = 0
    depth[0], place[0], survival[0] = 0, 0, 0.0
    token[0], on_path[0] = scores.anchor_token[i], realised.shape[1] > 0
    while True:
        d = depth[m]
        if m < nodes and d < rule.depth_cap:
            given = _given(scores, laws, newest, d, token[m])
            slot = d if pooled else _same_law(newest[d], given, laws.given, older)
            if slot < 0:
                slot = started
                started += 1
                _law(scores, i, block, laws, edges, d, given, slot)
                older[slot], newest[d] = newest[d], slot
            law[m] = slot
            at = shape[place[m], 0] if static else 0
            if static and at >= 0 and _unfound(laws, slot, 0):
                _next_child(scores, i, block, laws, slot, edges)
            x, state = _offer(laws, edges, slot, 0, survival[m], np.inf, rule)
            if state != NONE and at >= 0 and x >= floor:
                offered[m], bound[m] = x if state == FOUND else np.inf, state == BOUND
                key = -float(at) if static else x
                _up(keys, orders, used, key, (m << PARENT_BIT) + (d + 1) * by_depth)
                used += 1
        if m == nodes:
            break
        while used > 0:  # the best candidate is known once it comes first with its own score
            order = orders[0]
            parent, rank = (order >> PARENT_BIT) & LOW, order & LOW
            slot = law[parent]
            if not bound[parent]:
                break
            if _unfound(laws, slot, rank):
                _next_child(scores, i, block, laws, slot, edges)
            x, state = _offer(laws, edges, slot, rank, survival[parent], offered[parent], rule)
            bound[parent] = False
            if state == FOUND:
                offered[parent], key = x, x
            else:
                used -= 1
                key, order = keys[used], orders[used]
            _down(keys, orders, used, key, order)
        if used == 0 or (not static and keys[0] < floor):
            break
        m += 1
        d = depth[parent]
        survival[m], depth[m], token[m] = offered[parent], d + 1, kids_token[slot, rank]
        if static:
            place[m] = shape[place[parent], rank] + 1
        on_path[m] = on_path[parent] and realised[i, d] == token[m]
        if on_path[m]:
            hit_rank[i, d] = m
        above[m] = parent - 1
        ties += m > 1 and survival[m] == survival[m - 1]
        rank += 1
        at = 0
        if static:
            at = shape[place[parent], rank] if rank < shape.shape[1] else -1
            if at >= 0 and _unfound(laws, slot, rank):
                _next_child(scores, i, block, laws, slot, edges)
        x, state = _offer(laws, edges, slot, rank, survival[parent], offered[parent], rule)
        if state != NONE and at >= 0 and x >= floor:
            bound[parent] = state == BOUND
            offered[parent] = x if state == FOUND else offered[parent]
            key = -float(at) if static else x
            order = (parent << PARENT_BIT) + rank + (d + 1) * by_depth
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
