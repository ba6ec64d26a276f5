"""Compiled growth of sampled draft trees, forward or given the text that was emitted.

A tree is a queue of slots, places for one more child of a node. The best slot is admitted, and only
then is its token drawn, without replacement, from the parent's law q.
Where the target's text x and law p are known, the children of nodes on the text are drawn from
their law given x; so trees have the joint law with the text that live rounds would give them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from simulator.compiling import njit
from simulator.orders.kernels.best_first import (
    BORROWED,
    LOG_CLAMP,
    Head,
    bias_row,
)
from traces.common.keyed_noise import ACCEPT, DRAFTS, DRAW, ROOT_KEY

BLOCK = 64  # tokens whose weights are summed together

U = np.uint64
_M0, _M1 = U(0xD2E7470EE14C6C93), U(0xCA5A826395121157)  # of Philox-4x64 (Salmon et al., SC 2011)
_W0, _W1 = U(0x9E3779B97F4A7C15), U(0xBB67AE8584CAA73B)
_MIX1, _MIX2 = U(0xBF58476D1CE4E5B9), U(0x94D049BB133111EB)
_LOW, _ONE, _TWO, _11, _27, _30, _31, _32 = map(U, (0xFFFFFFFF, 1, 2, 11, 27, 30, 31, 32))
_DRAFTS, _ROOT = U(DRAFTS), U(ROOT_KEY)


class SampledLaws(NamedTuple):
    """Draft scores of n anchors over W candidates per depth."""

    logits: np.ndarray  # (n, D, W), -inf where banned; log-probabilities if `Rule.normal`
    token: np.ndarray  # (n, D, W) int64 of the candidates; (0, 0, 0): candidate w is token w
    anchor_token: np.ndarray  # (n,) int64
    head: Head  # of the Markov bias
    confidence: np.ndarray  # (n, D) state's part of the confidence logit, or (0, 0)
    parent_confidence: np.ndarray  # (V,) parent's part, or (0,)


class Truth(NamedTuple):
    """The target's text and laws; row is (n, 0) where they are not known."""

    p: np.ndarray  # (rows, W) of the candidates
    row: np.ndarray  # (n, D) int64 row of p
    x: np.ndarray  # (n, D) int64 candidate that the text has there, -1 = none of them


class SampledRule(NamedTuple):
    """How slots are scored and drawn."""

    nodes: int
    branch: int
    depth_cap: int
    inverse_t: float  # 1 / temperature of the drafts
    normal: bool  # logits are log q at temperature 1 as they are, of a part of the vocabulary
    calibrated: bool
    a: float
    b: float
    temperature: np.ndarray  # (D,) of the confidence logits; (0,): scored by q
    floor: float  # log bound below which no slot is admitted


class Keys(NamedTuple):
    """Where uniform draws come from."""

    seeds: np.ndarray  # (n,) uint64
    output_index: np.ndarray  # (n,) uint64
    given: np.ndarray  # (n, nodes) draws of the admitted slots in turn; (0, 0): keyed


class SampledTree(NamedTuple):
    """Work space for one anchor; node 0 is the anchor, node m + 1 the m-th admitted."""

    waiting: np.ndarray  # (nodes + 1,) bool, a slot of the node is in the queue
    bound: np.ndarray  # (nodes + 1,) its log bound
    tick: np.ndarray  # (nodes + 1,) int64 pushes before it
    drawn: np.ndarray  # (nodes + 1,) int64 children drawn, -1 = law not prepared
    survival: np.ndarray  # (nodes + 1,) log of the estimate that the node is accepted
    depth: np.ndarray  # (nodes + 1,) int64
    token: np.ndarray  # (nodes + 1,) int64
    key: np.ndarray  # (nodes + 1,) uint64
    looking: np.ndarray  # (nodes + 1,) bool, accepted itself and without an accepted child
    weight: np.ndarray  # (nodes + 1, W) proportional to q, 0 where drawn
    mass: np.ndarray  # (nodes + 1, blocks) of every block of weights
    peak: np.ndarray  # (nodes + 1,) largest logit
    log_z: np.ndarray  # (nodes + 1,) normaliser at temperature 1
    best: np.ndarray  # (nodes + 1, branch + 1) int64 best candidates by q, -1 = drawn or none
    best_logq: np.ndarray  # (nodes + 1, branch + 1) at temperature 1
    p: np.ndarray  # (D, W) the target's law behind an accepted node, after its rejections


@njit(**BORROWED)
def _multiply(a, b):
    """High and low word of a product of two 64-bit words."""
    a0, a1, b0, b1 = a & _LOW, a >> _32, b & _LOW, b >> _32
    middle = a1 * b0 + ((a0 * b0) >> _32)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _32) + (other >> _32), a * b


@njit(**BORROWED)
def _uniform(seed, output_index, slot_key, use):
    """See `keyed_noise.keyed_uniform`; the counter is stepped before the first word."""
    c0, c1, c2, c3 = use + _ONE, slot_key, _DRAFTS, U(0)
    k0, k1 = seed, output_index
    for _ in range(10):
        high0, low0 = _multiply(_M0, c0)
        high1, low1 = _multiply(_M1, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _W0, k1 + _W1
    return (np.float64(c0 >> _11) + 0.5) / 9007199254740992.0


@njit(**BORROWED)
def _step(key, value):
    """See `traces.common.keyed_noise.step_key`."""
    mixed = key + _W0 * U(value + 2)
    mixed = (mixed ^ (mixed >> _30)) * _MIX1
    mixed = (mixed ^ (mixed >> _27)) * _MIX2
    return mixed ^ (mixed >> _31)


@njit(cache=True, nogil=True)
def slot_uniforms(seeds, output_index, width, parent, token, use, out):
    """Keyed draws of every slot of given trees into out (n, M), by use; arrays as in OrderTable."""
    for i in range(len(width)):
        key = np.empty(width[i] + 1, np.uint64)
        drawn = np.zeros(width[i] + 1, np.int64)
        key[0] = _ROOT
        for m in range(width[i]):
            above = parent[i, m] + 1
            slot = _step(key[above], drawn[above])
            drawn[above] += 1
            out[i, m] = _uniform(seeds[i], output_index[i], slot, U(use))
            key[m + 1] = _step(slot, token[i, m])


@njit(**BORROWED)
def _log_sigmoid(z):
    return -math.log1p(math.exp(-z)) if z > 0 else z - math.log1p(math.exp(z))


@njit(**BORROWED)
def _log_edge(rule, logq):
    """log of the estimated acceptance of a draft with log-probability logq at temperature 1."""
    if not rule.calibrated:
        return logq
    logq = min(logq, LOG_CLAMP)
    return _log_sigmoid(rule.a * (logq - math.log1p(-math.exp(logq))) + rule.b)


@njit(**BORROWED)
def _offer(best, logit, w, x):
    """Keep candidate w of logit x if it is among the best, ties to the earlier candidate."""
    at = best.shape[0]
    while at > 0 and (best[at - 1] < 0 or logit[at - 1] < x):
        at -= 1
    if at < best.shape[0]:
        for k in range(best.shape[0] - 1, at, -1):
            best[k], logit[k] = best[k - 1], logit[k - 1]
        best[at], logit[at] = w, x


@njit(**BORROWED)
def _prepare(laws, truth, rule, tree, i, node):
    """Derive the law of a node's children; nothing is drawn. False if there is none."""
    d, width = tree.depth[node], laws.logits.shape[2]
    weight, best, logq = tree.weight[node], tree.best[node], tree.best_logq[node]
    for w in range(width):
        weight[w] = laws.logits[i, d, w]
    if laws.head.w1.shape[1] > 0:
        bias = laws.head.rows[bias_row(laws.head, tree.token[node])]
        for w in range(width):
            weight[w] += bias[w]
    best[:] = -1
    least = -np.inf
    for w in range(width):
        if weight[w] > least:
            _offer(best, logq, w, weight[w])
            if best[best.shape[0] - 1] >= 0:
                least = logq[best.shape[0] - 1]
    tree.drawn[node] = 0
    if best[0] < 0:
        return False
    peak, whole = logq[0], 0.0
    tempered = rule.inverse_t != 1.0
    for w in range(width):
        if tempered and not rule.normal:
            whole += math.exp(weight[w] - peak)
        weight[w] = math.exp((weight[w] - peak) * rule.inverse_t)
    total = _sum_blocks(tree, node)
    tree.peak[node] = peak
    tree.log_z[node] = 0.0 if rule.normal else peak + math.log(whole if tempered else total)
    for k in range(best.shape[0]):
        logq[k] -= tree.log_z[node]
    if tree.looking[node]:
        for w in range(width):
            tree.p[d, w] = truth.p[truth.row[i, d], w]
    return True


@njit(**BORROWED)
def _sum_block(weight, mass, block):
    """Sum of one block's weights, anew: what is drawn leaves no rounding behind."""
    total = 0.0
    for w in range(block * BLOCK, min((block + 1) * BLOCK, weight.shape[0])):
        total += weight[w]
    mass[block] = total


@njit(**BORROWED)
def _sum_blocks(tree, node):
    total = 0.0
    for block in range(tree.mass.shape[1]):
        _sum_block(tree.weight[node], tree.mass[node], block)
        total += tree.mass[node, block]
    return total


@njit(**BORROWED)
def _forward(weight, mass, u):
    """Candidate at the share u in [0, 1) of the weights, in the sequence of candidates."""
    left, block, at = u * mass.sum(), 0, -1
    for k in range(mass.shape[0]):
        if mass[k] > 0.0:
            block = k  # the last one, where rounding leaves none
            if left < mass[k]:
                break
            left -= mass[k]
    for w in range(block * BLOCK, min((block + 1) * BLOCK, weight.shape[0])):
        if weight[w] > 0.0:
            at = w
            if left < weight[w]:
                break
            left -= weight[w]
    return at


@njit(**BORROWED)
def _rejected(weight, total, p, x, u):
    """Candidate at the share u of (q - p)+, which is what a rejected child is drawn from.

    p becomes the law behind the rejection, (p - q)+ normalised: both have the same mass.
    Where rounding leaves none, q is its own residual, without x, which was not accepted.
    """
    mass = 0.0
    for w in range(weight.shape[0]):
        mass += max(weight[w] / total - p[w], 0.0)
    at, left, rest = -1, u * mass, 0.0
    for w in range(weight.shape[0]):
        q = weight[w] / total
        part = max(q - p[w], 0.0) if mass > 0.0 else (weight[w] if w != x else 0.0)
        if part > 0.0 and (at < 0 or left >= rest):
            at = w
        rest += part
        if mass > 0.0:
            p[w] = max(p[w] - q, 0.0) / mass
    return at


@njit(**BORROWED)
def _draw(truth, tree, keys, i, node, count, slot):
    """(candidate, whether it is accepted) for the slot that is admitted as number `count`."""
    weight, mass, d = tree.weight[node], tree.mass[node], tree.depth[node]
    if keys.given.shape[0] > 0:
        return _forward(weight, mass, keys.given[i, count]), False
    seed, index = keys.seeds[i], keys.output_index[i]
    if tree.looking[node]:
        x, total = truth.x[i, d], mass.sum()
        coin = _uniform(seed, index, slot, U(ACCEPT))
        # accepted, and so equal to the text, with chance min(1, q(x) / p(x))
        if x >= 0 and coin * tree.p[d, x] < weight[x] / total:
            return x, True
        z = _rejected(weight, total, tree.p[d], x, _uniform(seed, index, slot, U(DRAW)))
        return (x, True) if z < 0 else (z, False)
    return _forward(weight, mass, _uniform(seed, index, slot, U(DRAW))), False


@njit(**BORROWED)
def _largest_left(tree, node):
    """log q at temperature 1 of the best candidate not drawn, -inf if there is none."""
    for k in range(tree.best.shape[1]):
        if tree.best[node, k] >= 0:
            return tree.best_logq[node, k]
    return -np.inf


@njit(**BORROWED)
def _remove(tree, rule, node, w):
    """Take a drawn candidate out of its law; its log q at temperature 1.

    Never above the largest that was left, so that a child's bound never exceeds its slot's.
    """
    logq = tree.peak[node] + math.log(tree.weight[node, w]) / rule.inverse_t - tree.log_z[node]
    logq = min(logq, _largest_left(tree, node))
    for k in range(tree.best.shape[1]):
        if tree.best[node, k] == w:
            logq = tree.best_logq[node, k]
            tree.best[node, k] = -1
    tree.weight[node, w] = 0.0
    _sum_block(tree.weight[node], tree.mass[node], w // BLOCK)
    tree.drawn[node] += 1
    return logq


@njit(**BORROWED)
def _bound(laws, rule, tree, i, node):
    """log bound of a prepared node's next slot: a confidence reads the parent's token alone."""
    if rule.temperature.shape[0] > 0:
        d = tree.depth[node]
        z = laws.confidence[i, d] + laws.parent_confidence[tree.token[node]]
        return tree.survival[node] + _log_sigmoid(z / rule.temperature[d])
    return tree.survival[node] + _log_edge(rule, _largest_left(tree, node))


@njit(**BORROWED)
def _push(tree, node, bound, tick):
    tree.waiting[node], tree.bound[node], tree.tick[node] = bound > -np.inf, bound, tick
    return tick + 1


@njit(**BORROWED)
def _pop(tree, count):
    """The node with the best slot, ties to the earlier push; -1 if none waits."""
    best = -1
    for node in range(count + 1):
        if tree.waiting[node]:
            higher = best < 0 or tree.bound[node] > tree.bound[best]
            if higher or (
                tree.bound[node] == tree.bound[best] and tree.tick[node] < tree.tick[best]
            ):
                best = node
    if best >= 0:
        tree.waiting[best] = False
    return best


@njit(**BORROWED)
def _plant(tree, node, depth, token, key, survival, looking):
    tree.depth[node], tree.token[node], tree.key[node] = depth, token, key
    tree.survival[node], tree.looking[node] = survival, looking
    tree.drawn[node], tree.waiting[node] = -1, False


@njit(**BORROWED)
def _grow(laws, truth, rule, keys, tree, rows, i):
    """One tree. An unprepared node waits under its own survival, which bounds its children's."""
    _plant(tree, 0, 0, laws.anchor_token[i], _ROOT, 0.0, truth.row.shape[1] > 0)
    tick, count, last = _push(tree, 0, 0.0, 0), 0, np.inf
    while count < rule.nodes:
        node = _pop(tree, count)
        if node < 0 or tree.bound[node] < rule.floor:
            break
        if tree.drawn[node] < 0:
            if _prepare(laws, truth, rule, tree, i, node):
                tick = _push(tree, node, _bound(laws, rule, tree, i, node), tick)
            continue
        slot, d = _step(tree.key[node], tree.drawn[node]), tree.depth[node]
        w, accepted = _draw(truth, tree, keys, i, node, count, slot)
        token = laws.token[i, d, w] if laws.token.shape[0] > 0 else w
        score = min(tree.bound[node], last)  # bounds fall, but for the last digit
        # slots of one parent often share a bound, and their sequence is given
        rows.ties[i] += score == last and rows.parent[i, count - 1] != node - 1
        rows.score[i, count], rows.depth[i, count], last = score, d + 1, score
        rows.parent[i, count], rows.token[i, count] = node - 1, token
        count += 1
        logq = _remove(tree, rule, node, w)
        survival = tree.survival[node] + _log_edge(rule, logq)
        if rule.temperature.shape[0] > 0:
            survival = tree.bound[node]
        _plant(tree, count, d + 1, token, _step(slot, token), survival, accepted)
        if accepted:
            tree.looking[node] = False
            rows.hit_rank[i, d] = count
        if d + 1 < rule.depth_cap:
            tick = _push(tree, count, survival, tick)
        if tree.drawn[node] < rule.branch and tree.mass[node].sum() > 0.0:
            tick = _push(tree, node, _bound(laws, rule, tree, i, node), tick)
    return count


@njit(cache=True, nogil=True)
def grow(laws, truth, rule, keys, rows):
    """Grow the trees of n anchors into rows, which hold their paddings already."""
    nodes, width = rule.nodes + 1, laws.logits.shape[2]
    blocks = (width + BLOCK - 1) // BLOCK
    tree = SampledTree(
        np.zeros(nodes, np.bool_),
        np.zeros(nodes),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.uint64),
        np.zeros(nodes, np.bool_),
        np.zeros((nodes, width)),
        np.zeros((nodes, blocks)),
        np.zeros(nodes),
        np.zeros(nodes),
        np.zeros((nodes, rule.branch + 1), np.int64),
        np.zeros((nodes, rule.branch + 1)),
        np.zeros((laws.logits.shape[1], width)),
    )
    for i in range(laws.logits.shape[0]):
        rows.size[i] = _grow(laws, truth, rule, keys, tree, rows, i)
