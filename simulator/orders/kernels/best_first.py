"""Compiled construction of orders, in float64.

Children come from pools, or from the full law softmax(logits + bias[parent]). With
E = exp(logits - max) and exp(bias - max) at hand, Z(u) = E . exp_bias[u] needs no exp per parent,
and the terms of that product are the children's probabilities times Z. A law is computed once per
depth and parent. Its children are found one at a time, from the largest terms of short runs of
tokens, and only as they come first: until then, the largest term left says what the next one will
score. All in one file, because numba does not recompile a caller when a function elsewhere changes.

LLVM makes vectors of `_exps`, `_peak` and `_products`. Beside vectors written by hand and arrays
passed by address, order + allocate at 127 nodes takes 1.2 times as long for batches of 4 and 16,
1.35 for a lone request (bench_live_host.py: 45 against 33 us).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from simulator.compiling import njit
from simulator.orders.table import ABSENT

SMALLEST = 1e-250  # below it the product of two shifted exponentials may have underflowed
SLACK = 1 - 1e-11  # two products further apart differ in the same sense as logits + bias
LOG_CLAMP = np.log1p(-1e-9)  # TreeSpark clamps q to 1 - 1e-9 before the logit
RUN = 64  # tokens whose largest term is kept
TIE = 1e-10  # log of a term over Z, and the same from logits + bias, are closer than that
NONE, FOUND, BOUND = range(3)  # what is known of a child, see `_offer`
PARENT, POOL, MARGINAL, BIASED = range(4)  # kinds of Scores, see `_given`
NO_PARENT = -1  # the law without any bias
DEPTH_BIT, PARENT_BIT = 30, 15  # heap order by depth, then by push: parent, then rank
LOW = (1 << PARENT_BIT) - 1  # a division would take longer than all else that is done with it

# exp(x) = 2^k exp(r), |r| <= log(2) / 2: adding ROUND leaves k + 1023 in the lowest bits.
# exp(r) = 1 + r + r^2 (C0 + C1 r + ...), by interpolation at Chebyshev nodes: off by 2e-17
LOG2_E, LN2, ROUND = 1 / math.log(2), math.log(2), 1.5 * 2.0**52 + 1023
C0, C1, C2 = 0.5, 0.16666666666666669, 0.04166666666662399
C3, C4, C5 = 0.008333333333330051, 0.0013888888917281794, 0.00019841269863105968
C6, C7 = 2.480152119021773e-05, 2.7557268378684192e-06
C8, C9 = 2.7620138719732994e-07, 2.5100424157005067e-08
LOWEST = -708.0  # exp of less is not a normal number: taken as this

# Functions that allocate nothing need not count references to the arrays of their arguments: for
# the small ones that costs more than their work (650 against 200 ns for a child).
BORROWED = {"cache": True, "nogil": True, "_nrt": False, "error_model": "numpy"}
# A call copies every array of its tuples (200 ns): what is done per law or child has none.
INLINED = {"inline": "always", **BORROWED}
# Loops for vectors: x y + z may be rounded once; a product may be summed in any sequence.
ROUNDED = {"fastmath": {"contract"}, **BORROWED}
SUMMED = {"fastmath": {"contract", "reassoc", "nsz"}, **BORROWED}


class Head(NamedTuple):
    """A head's Markov bias W1 W2^T: the rows computed so far, R at most; row R is all zero."""

    w1: np.ndarray  # (V, r)
    w2: np.ndarray  # (r, V), transposed
    slot: np.ndarray  # (V,) int64 row of a parent token, -1 = not computed
    owner: np.ndarray  # (R,) int64 parent token of a row, -1 = free
    cursor: np.ndarray  # (1,) int64 row to be (re)used next
    rows: np.ndarray  # (R + 1, V)
    exps: np.ndarray  # (R + 1, runs, RUN) exp(row - peak); V up to whole runs, see `runs`
    peak: np.ndarray  # (R + 1,)
    banned: np.ndarray  # int64 tokens never drafted


class Scores(NamedTuple):
    """Draft scores of n anchors; the arrays that are not used are empty."""

    pool_token: np.ndarray  # (n, D, K) int64
    pool_logq: np.ndarray  # (n, D, K), falling
    logits: np.ndarray  # (n, D, V) float64, or
    single: np.ndarray  # (n, D, V) float32
    anchor_token: np.ndarray  # (n,) int64


class Rule(NamedTuple):
    """How `grow` picks nodes: by score, or in the sequence of a static shape."""

    kind: int  # of scores: PARENT, POOL, MARGINAL or BIASED
    nodes: int
    branch: int
    depth_cap: int
    ties_by_depth: bool
    calibrated: bool
    a: float
    b: float
    floor: float  # log survival below which nothing is emitted
    shape: np.ndarray  # (nodes + 1, branch) int64 place of node m - 1's child by rank, -1 = none


NODE = np.dtype(
    [
        ("law", "i8"),  # slot of the node's children
        ("place", "i8"),  # in the static shape, + 1
        ("depth", "i8"),
        ("token", "i8"),
        ("above", "i8"),  # parent as in the output
        ("survival", "f8"),  # log survival
        ("offered", "f8"),  # log survival of the last child that was found
        ("bound", "?"),  # whether the child in the heap is not found yet
        ("on_path", "?"),
    ],
    align=True,
)
LAW = np.dtype(
    [
        ("kids", "i8"),  # children found
        ("depth", "i8"),  # 0-based
        ("given", "i8"),  # the parent's token
        ("older", "i8"),  # next slot of the same depth, -1 = none
        ("left", "f8"),  # largest term that is no child yet
        ("total", "f8"),  # Z, shifted by both peaks
        ("growing", "?"),  # whether `_next_child` may find more
    ],
    align=True,
)
CHILD = np.dtype([("token", "i8"), ("logq", "f8"), ("edge", "f8")])  # log survival; nan = unknown


class WorkSpace(NamedTuple):
    """Work space for one anchor; nodes from 1, 0 = the anchor. A law has a slot per parent."""

    node: np.ndarray  # (nodes + 1,) NODE
    key: np.ndarray  # (nodes + 1,) the heap's keys,
    order: np.ndarray  # (nodes + 1,) int64 and what decides between equal ones
    newest: np.ndarray  # (D,) int64 first slot of a depth, -1 = none
    law: np.ndarray  # (slots,) LAW
    child: np.ndarray  # (slots, branch) CHILD, best first, as far as needed
    largest: np.ndarray  # (slots, runs) largest term of every run that is no child yet
    exps: np.ndarray  # (D, runs, RUN) exp(logits - peak), 0 where banned and from V on
    peak: np.ndarray  # (D,), nan = not derived yet
    row: np.ndarray  # (V,) float64 logits, -inf where banned


class Rows(NamedTuple):
    """Output rows of n anchors, see OrderTable."""

    score: np.ndarray
    depth: np.ndarray
    parent: np.ndarray
    token: np.ndarray
    size: np.ndarray
    hit_rank: np.ndarray
    ties: np.ndarray


def runs(vocab: int) -> int:
    """Runs of a row of `vocab` tokens."""
    return -(-vocab // RUN)


def work_space(vocab: int, depths: int, nodes: int, branch: int) -> WorkSpace:
    """Arrays for `grow` (or `best_children`, with one node); to be kept, fresh pages cost more."""
    slots, node = max(nodes, depths), nodes + 1
    return WorkSpace(
        node=np.zeros(node, NODE),
        key=np.zeros(node),
        order=np.zeros(node, np.int64),
        newest=np.zeros(depths, np.int64),
        law=np.zeros(slots, LAW),
        child=np.zeros((slots, branch), CHILD),
        largest=np.zeros((slots, runs(vocab))),
        exps=np.zeros((depths, runs(vocab), RUN)),
        peak=np.zeros(depths),
        row=np.zeros(vocab),
    )


@njit(**ROUNDED)
def _exps(x, peak, out):
    """exp(x - peak) of x (V,), float32 or float64, into the first V of out; to a few ulp."""
    flat = out.reshape(out.size)
    for v in range(x.shape[0]):
        z = max(x[v] - peak, LOWEST)
        shifted = z * LOG2_E + ROUND
        r = z - (shifted - ROUND) * LN2
        r2 = r * r
        p = 1.0 + r + r2 * (C0 + r * C1)
        q = C2 + r * C3 + r2 * (C4 + r * C5)
        t = C6 + r * C7 + r2 * (C8 + r * C9)
        exponent = np.float64(shifted).view(np.int64) << 52
        flat[v] = (p + r2 * r2 * (q + r2 * r2 * t)) * np.int64(exponent).view(np.float64)


@njit(**BORROWED)
def _by_size(x):
    """int64 in the order of float64 numbers, which unlike them LLVM takes maxima of in vectors.

    Numbers of at least 0 are in the order of their bits as they are.
    """
    bits = np.float64(x).view(np.int64)
    return bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)


@njit(**BORROWED)
def _peak(x):
    """The largest of x (V,), V at least 1."""
    most = _by_size(-np.inf)
    for v in range(x.shape[0]):
        most = max(most, _by_size(x[v]))
    return np.int64(most ^ ((most >> 63) & 0x7FFFFFFFFFFFFFFF)).view(np.float64)


@njit(**SUMMED)
def _products(x, y, largest):
    """(product of x and y >= 0 (runs, RUN), its largest term); the largest of every run."""
    total, left = 0.0, 0.0
    for s in range(x.shape[0]):
        part, most = 0.0, np.int64(0)
        for v in range(x.shape[1]):
            term = x[s, v] * y[s, v]
            part += term
            most = max(most, np.float64(term).view(np.int64))
        largest[s] = np.int64(most).view(np.float64)
        total += part
        left = max(left, largest[s])
    return total, left


@njit(**BORROWED)
def _take(x, y, largest, term):
    """(token, largest term left): take the largest term out of the maxima.

    Terms taken before were clearly larger, so what is left of a run are its terms below this.
    Where terms are equal, the term itself is said to be left.
    """
    equal, others, rest = 0, 0.0, 0.0
    for k in range(largest.shape[0]):
        others = max(others, largest[k] if largest[k] < term else 0.0)
        equal += largest[k] == term
    s = v = 0
    while largest[s] != term:
        s += 1
    for k in range(x.shape[1]):
        value = x[s, k] * y[s, k]
        rest = max(rest, value if value < term else 0.0)
        equal += value == term
    while x[s, v] * y[s, v] != term:
        v += 1
    largest[s] = rest
    return s * RUN + v, term if equal > 2 else max(rest, others)


@njit(**BORROWED)
def bias_row(head, token):
    """Row of `token`, computed if need be in place of the oldest; NO_PARENT: the zero row."""
    if token < 0:
        return head.owner.shape[0]
    if head.slot[token] >= 0:
        return head.slot[token]
    at = head.cursor[0]
    head.cursor[0] = (at + 1) % head.owner.shape[0]
    if head.owner[at] >= 0:
        head.slot[head.owner[at]] = -1
    head.owner[at], head.slot[token] = token, at
    row = head.rows[at]
    for v in range(row.shape[0]):
        row[v] = 0.0
    for k in range(head.w1.shape[1]):
        factor = head.w1[token, k]
        for v in range(row.shape[0]):
            row[v] += factor * head.w2[k, v]
    head.peak[at] = _peak(row)
    _exps(row, head.peak[at], head.exps[at])
    return at


@njit(**INLINED)
def _row_at(head, token):
    """`bias_row`, where most rows are known."""
    at = head.slot[token] if token >= 0 else head.owner.shape[0]
    return at if at >= 0 else bias_row(head, token)


@njit(cache=True, nogil=True)
def fill_rows(head):
    """Compute the rows of as many parent tokens as there is room for, the smallest ids first."""
    for token in range(head.owner.shape[0]):
        bias_row(head, token)


@njit(**BORROWED)
def _insert(x, v, count, child):
    """Put v, of value x, in its place among the best; v rises from call to call; new count."""
    at = min(count, child.shape[0] - 1)
    if count > at and child[at].logq >= x:
        return count
    while at > 0 and child[at - 1].logq < x:
        child[at].logq, child[at].token = child[at - 1].logq, child[at - 1].token
        at -= 1
    child[at].logq, child[at].token = x, v
    return min(count + 1, child.shape[0])


@njit(**BORROWED)
def _settle(scores, head, work, i, slot):
    """All children of the slot in the exact sequence of logits + bias, ties to the smaller id.

    Where products underflow, Z is summed from its definition.
    """
    law, child, row = work.law[slot], work.child[slot], work.row
    at, d, single = bias_row(head, law.given), law.depth, scores.single.shape[0] > 0
    for v in range(row.shape[0]):
        row[v] = scores.single[i, d, v] if single else scores.logits[i, d, v]
    for token in head.banned:
        row[token] = -np.inf
    count = 0
    for v in range(row.shape[0]):
        row[v] += head.rows[at, v]
        if row[v] > -np.inf:
            count = _insert(row[v], v, count, child)
    if law.total > SMALLEST:
        log_z = np.log(law.total) + work.peak[d] + head.peak[at]
    else:
        total, most = 0.0, child[0].logq
        for v in range(row.shape[0]):
            total += np.exp(row[v] - most)
        log_z = np.log(total) + most
    for c in range(count):
        child[c].logq = min(child[c].logq - log_z, 0.0)
    law.kids, law.growing = count, False


@njit(**BORROWED)
def _load(scores, head, work, i, d):
    """Derive what laws at depth d of anchor i need from its logits.

    A banned token may be the peak: any shift will do that lets no product underflow.
    """
    if scores.single.shape[0] > 0:
        work.peak[d] = _peak(scores.single[i, d])
        _exps(scores.single[i, d], work.peak[d], work.exps[d])
    else:
        work.peak[d] = _peak(scores.logits[i, d])
        _exps(scores.logits[i, d], work.peak[d], work.exps[d])
    for token in head.banned:
        work.exps[d, token // RUN, token % RUN] = 0.0


@njit(**INLINED)
def _start(scores, head, work, i, d, given, slot):
    """Start a slot: the law at 0-based depth d given the parent, no child found yet."""
    law = work.law[slot]
    for rank in range(work.child.shape[1]):
        work.child[slot, rank].edge = np.nan
    if np.isnan(work.peak[d]):
        _load(scores, head, work, i, d)
    exps = head.exps[_row_at(head, given)]
    law.total, law.left = _products(work.exps[d], exps, work.largest[slot])
    law.depth, law.given, law.kids, law.growing = d, given, 0, True
    if not law.left > SMALLEST:
        _settle(scores, head, work, i, slot)


@njit(**INLINED)
def _next_child(scores, head, work, i, slot):
    """Find the slot's next child by its term; all of them by `_settle` if terms cannot tell."""
    law, exps = work.law[slot], head.exps[_row_at(head, work.law[slot].given)]
    term, kid = law.left, law.kids
    found, left = _take(work.exps[law.depth], exps, work.largest[slot], term)
    growing = kid + 1 < work.child.shape[1]
    if left >= term * SLACK:
        _settle(scores, head, work, i, slot)
        work.child[slot, kid].edge = np.nan
    elif growing and not left > SMALLEST:
        _settle(scores, head, work, i, slot)
    else:
        child = work.child[slot, kid]
        child.token, law.left = found, left
        if np.isnan(child.edge):  # otherwise its bound was its own
            child.logq = min(np.log(term / law.total), 0.0)
        law.kids, law.growing = kid + 1, growing


@njit(cache=True, nogil=True)
def best_children(scores, head, work, block, depth, given, floor, token, logq):
    """Fill token and logq (m, branch), both falling: children of m nodes at a 0-based depth.

    block (m,) rising: of the nodes. given (m,): their tokens. Children whose log q is below
    floor (m,) may be left out; work: of one node and as many children.
    """
    for j in range(block.shape[0]):
        if j == 0 or block[j] != block[j - 1]:
            first, work.peak[depth] = j, np.nan
        same = first
        while given[same] != given[j]:
            same += 1
        if same < j:
            token[j], logq[j] = token[same], logq[same]
            continue
        _start(scores, head, work, block[j], depth, given[j], 0)
        law = work.law[0]
        least = law.total * np.exp(floor[j])
        while law.growing and law.left >= least:
            _next_child(scores, head, work, block[j], 0)
        for c in range(law.kids):
            token[j, c], logq[j, c] = work.child[0, c].token, work.child[0, c].logq


@njit(**BORROWED)
def _edge(child, rule):
    """Log survival of an edge: log q, or log sigmoid(a logit q + b); once for all its nodes."""
    if np.isnan(child.edge):
        child.edge = min(child.logq, 0.0)
        if rule.calibrated:
            logq = min(child.logq, LOG_CLAMP)
            z = rule.a * (logq - np.log(-np.expm1(logq))) + rule.b
            child.edge = z - np.log1p(np.exp(z)) if z < 0 else -np.log1p(np.exp(-z))
    return child.edge


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
def _unfound(work, slot, rank):
    """Whether `_next_child` must find the slot's child of that rank."""
    return rank == work.law[slot].kids and work.law[slot].growing


@njit(**INLINED)
def _offer(work, slot, rank, above, limit, rule):
    """(log survival, FOUND) of the slot's child of that rank below a node of log survival `above`.

    Or (its bound, BOUND) where the largest term left is all that is known: right unless `_settle`
    will find the children, and then too small by less than TIE of log q. Its edge falls by at most
    2 a per unit, as two children are almost equal then, and q is at most about a half. (-inf, NONE)
    if there is no such child. At most `limit`: rounding in `_edge` could let a sibling rise.
    """
    law = work.law[slot]
    if _unfound(work, slot, rank):
        child = work.child[slot, rank]
        if np.isnan(child.edge):
            child.logq = min(np.log(law.left / law.total), 0.0)
        return above + _edge(child, rule) + TIE * (1 + 2 * rule.a), BOUND
    if rank >= law.kids or work.child[slot, rank].logq == -np.inf:
        return -np.inf, NONE
    return min(above + _edge(work.child[slot, rank], rule), limit), FOUND


@njit(**INLINED)
def _given(work, kind, d, token):
    """The token whose bias the children at depth d get below a node of that token, -1 = none.

    BIASED: the greedy chain's; above its end lies the first child of the only law one depth above.
    """
    if kind == MARGINAL:
        return NO_PARENT
    return work.child[work.newest[d - 1], 0].token if kind == BIASED and d > 0 else token


@njit(**INLINED)
def _same_law(law, slot, given):
    """The slot of children given that token, from `slot` on among those of a depth; -1 = none."""
    while slot >= 0 and law[slot].given != given:
        slot = law[slot].older
    return slot


@njit(**BORROWED)
def _copy_lists(scores, work, i):
    """The pool as children, one slot per depth; False where it rises."""
    falls, logq = True, scores.pool_logq
    for d in range(logq.shape[1]):
        law = work.law[d]
        law.kids, law.growing = min(logq.shape[2], work.child.shape[1]), False
        for c in range(law.kids):
            child = work.child[d, c]
            child.token, child.logq, child.edge = scores.pool_token[i, d, c], logq[i, d, c], np.nan
            falls &= c == 0 or logq[i, d, c] <= logq[i, d, c - 1]
    return falls


@njit(cache=True, nogil=True)
def grow(*fields):
    """Fill Rows for all anchors; False if a pool's list rises.

    fields: of Scores, Head, Rule, WorkSpace and Rows in turn, and the realised tokens to look for:
    (n, D) int64, -1 = unknown; (n, 0) = none known. An array by itself is passed in 80 ns, one in
    a tuple in 180: together that is a tenth of a lone request's time.
    """
    scores, head, rule = Scores(*fields[:5]), Head(*fields[5:14]), Rule(*fields[14:24])
    work, rows, realised = WorkSpace(*fields[24:34]), Rows(*fields[34:41]), fields[41]
    for i in range(rows.size.shape[0]):
        if rule.kind == POOL and not _copy_lists(scores, work, i):
            return False
        _grow(scores, head, rule, work, rows, realised, i)
    return True


@njit(**BORROWED)
def _grow(scores, head, rule, work, rows, realised, i):
    """Pop the best candidate of anchor i, emit it, offer its next sibling and its first child.

    Siblings enter the heap one by one, as none can leave before a better one. Equal keys leave in
    the sequence in which all children at once would have been pushed. A static shape names the
    children to offer, and their places in it are the heap's keys.
    """
    nodes, shape, floor = rule.nodes, rule.shape, rule.floor
    static, pooled = shape.shape[0] > 0, rule.kind == POOL
    by_depth = 1 << DEPTH_BIT if rule.ties_by_depth else 0
    keys, orders = work.key, work.order
    for d in range(work.peak.shape[0]):
        work.peak[d], work.newest[d], rows.hit_rank[i, d] = np.nan, -1, ABSENT
    used = started = m = ties = 0
    node = work.node[0]
    node.depth, node.place, node.survival = 0, 0, 0.0
    node.token, node.on_path = scores.anchor_token[i], realised.shape[1] > 0
    while True:
        d = node.depth
        if m < nodes and d < rule.depth_cap:
            given = _given(work, rule.kind, d, node.token)
            slot = d if pooled else _same_law(work.law, work.newest[d], given)
            if slot < 0:
                slot = started
                started += 1
                _start(scores, head, work, i, d, given, slot)
                work.law[slot].older, work.newest[d] = work.newest[d], slot
            node.law = slot
            at = shape[node.place, 0] if static else 0
            if static and at >= 0 and _unfound(work, slot, 0):
                _next_child(scores, head, work, i, slot)
            x, state = _offer(work, slot, 0, node.survival, np.inf, rule)
            if state != NONE and at >= 0 and x >= floor:
                node.offered, node.bound = x if state == FOUND else np.inf, state == BOUND
                key = -float(at) if static else x
                _up(keys, orders, used, key, (m << PARENT_BIT) + (d + 1) * by_depth)
                used += 1
        if m == nodes:
            break
        while used > 0:  # the best candidate is known once it comes first with its own score
            order = orders[0]
            index, rank = (order >> PARENT_BIT) & LOW, order & LOW
            parent = work.node[index]
            slot = parent.law
            if not parent.bound:
                break
            if _unfound(work, slot, rank):
                _next_child(scores, head, work, i, slot)
            x, state = _offer(work, slot, rank, parent.survival, parent.offered, rule)
            parent.bound = False
            if state == FOUND:
                parent.offered, key = x, x
            else:
                used -= 1
                key, order = keys[used], orders[used]
            _down(keys, orders, used, key, order)
        if used == 0 or (not static and keys[0] < floor):
            break
        m += 1
        d = parent.depth
        node = work.node[m]
        node.survival, node.depth, node.above = parent.offered, d + 1, index - 1
        node.token = work.child[slot, rank].token
        if static:
            node.place = shape[parent.place, rank] + 1
        node.on_path = parent.on_path and realised[i, d] == node.token
        if node.on_path:
            rows.hit_rank[i, d] = m
        ties += m > 1 and node.survival == work.node[m - 1].survival
        rank += 1
        at = 0
        if static:
            at = shape[parent.place, rank] if rank < shape.shape[1] else -1
            if at >= 0 and _unfound(work, slot, rank):
                _next_child(scores, head, work, i, slot)
        x, state = _offer(work, slot, rank, parent.survival, parent.offered, rule)
        if state != NONE and at >= 0 and x >= floor:
            parent.bound = state == BOUND
            parent.offered = x if state == FOUND else parent.offered
            key = -float(at) if static else x
            order = (index << PARENT_BIT) + rank + (d + 1) * by_depth
        else:
            used -= 1
            key, order = keys[used], orders[used]
        _down(keys, orders, used, key, order)
    rows.size[i], rows.ties[i] = m, ties
    for k in range(rows.score.shape[1]):
        node, exists = work.node[k + 1], k < m
        rows.score[i, k] = node.survival if exists else -np.inf
        rows.depth[i, k] = node.depth if exists else 0
        rows.token[i, k] = node.token if exists else -1
        rows.parent[i, k] = node.above if exists else -1
