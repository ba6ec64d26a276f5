"""The best children of many nodes at once, for orders that are grown list by list or by layers.

The law of a node's children is softmax(logits + bias[parent]). With E = exp(logits - peak) and the
exponentials of a parent's bias at hand, its normaliser is one product, without an exp per parent.
All in one file, because numba does not recompile a caller when a function elsewhere changes.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from simulator.compiling import njit
from simulator.orders.scores import ROW_BYTES, BlockScores, DraftHead
from traces.common.errors import InputError

SMALLEST = 1e-250  # a smaller sum of products may have lost terms to underflow
SLACK = 1e-9  # more than rounding of a log probability
RUN = 64  # tokens looked at together
NO_PARENT = -1  # the law without any bias
_KEPT: WeakKeyDictionary[DraftHead, ChildBias] = WeakKeyDictionary()


class ChildBias(NamedTuple):
    """Bias rows W1 W2^T computed so far, R at most, the oldest replaced; row R is all zero."""

    w1: np.ndarray  # (V, r)
    w2: np.ndarray  # (r, V)
    slot: np.ndarray  # (V,) int64 row of a parent token, -1 = not computed
    owner: np.ndarray  # (R,) int64 parent token of a row, -1 = free
    cursor: np.ndarray  # (1,) int64 row to be used next
    rows: np.ndarray  # (R + 1, V)
    exps: np.ndarray  # (R + 1, V) exp(row - peak)
    peak: np.ndarray  # (R + 1,)


class Children:
    """Children of the nodes of n blocks, the best `branch` of each.

    scores: "parent" (given the node's own token), "marginal" (no bias), "marginal_biased" (given
    the greedy chain's token); pools know one kind only. Raises InputError for a pool that rises.
    """

    def __init__(self, block: BlockScores, scores: str, branch: int) -> None:
        self._scores, self._branch, self._pooled = scores, branch, block.pooled
        self.size, self.depths = block.shape[:2]
        if block.pooled:
            self._token = np.asarray(block.pool_token[..., :branch], np.int64)
            logq = np.asarray(block.pool_logprob[..., :branch], np.float64)
            self._logq = np.minimum(logq, 0.0)  # (n, D, branch)
            if (logq[..., 1:] > logq[..., :-1]).any():
                raise InputError("BlockScores pool_logprob: rises along a row, accepted: falling")
            self.anchor_token = np.full(self.size, NO_PARENT)
            return
        double, single = block.full_logits()  # one of them empty
        self._logits = double if double.size else np.array(single, np.float64)
        self._banned, self._bias = block.head.banned, _bias(block.head)
        self.anchor_token = np.array(block.anchor_token, np.int64)  # (n,)
        self._chain: list[np.ndarray] = [self.anchor_token]  # greedy tokens, (n,) per depth

    def of(self, depth: int, rows: np.ndarray, parents: np.ndarray, floor=None):
        """Children at 0-based `depth` of m nodes: (m, branch) tokens int64 and log q, falling.

        rows: (m,) the nodes' blocks, ascending. parents: (m,) the nodes' tokens. Children that
        do not exist are -1 at -inf; those whose log q is below floor (m,), rising within a block,
        may be left out likewise.
        """
        if self._pooled:
            return self._token[rows, depth], self._logq[rows, depth]
        given = np.asarray(parents, np.int64)
        if self._scores == "marginal":
            given = np.full(len(rows), NO_PARENT)
        elif self._scores == "marginal_biased":
            given = self._greedy(depth)[rows]
        return self._find(depth, rows, given, self._branch, floor)

    def lists(self) -> tuple[np.ndarray, np.ndarray]:
        """Marginal lists of every depth: (n, D, branch) tokens int64 and log q, falling."""
        if self._pooled:
            return self._token, self._logq
        rows = np.arange(self.size)
        found = []
        for depth in range(self.depths):
            found.append(self.of(depth, rows, self.anchor_token))
            if len(self._chain) == depth + 1:
                self._chain.append(found[-1][0][:, 0])
        return tuple(np.stack(part, axis=1) for part in zip(*found, strict=True))

    def _greedy(self, depth: int) -> np.ndarray:
        """Token of the greedy chain above 0-based `depth`: (n,)."""
        while len(self._chain) <= depth:
            last = len(self._chain) - 1
            token, _ = self._find(last, np.arange(self.size), self._chain[last], 1)
            self._chain.append(token[:, 0])
        return self._chain[depth]

    def _find(self, depth, rows, given, branch, floor=None):
        token, logq = np.full((len(rows), branch), -1), np.full((len(rows), branch), -np.inf)
        floor = np.full(len(rows), -np.inf) if floor is None else floor - SLACK
        _laws(self._logits, depth, rows, given, floor, self._banned, self._bias, token, logq)
        return token, logq


def best(score: np.ndarray, first: np.ndarray, top: int) -> np.ndarray:
    """Indices of the best of every group, equal scores by index: (groups, top), -1 = none.

    score (m,); group g is score[first[g] : first[g + 1]], -inf does not count.
    """
    place, value = np.full((len(first) - 1, top), -1), np.full((len(first) - 1, top), -np.inf)
    _best_of_groups(score, first, place, value)
    return place


def _bias(head: DraftHead) -> ChildBias:
    """Bias rows of a head, kept as long as the head is."""
    if head not in _KEPT:
        vocab = head.vocab_size
        count = int(min(max(ROW_BYTES // (16 * vocab), 1), vocab)) if head.conditioned else 1
        rows, exps = np.zeros((count + 1, vocab)), np.ones((count + 1, vocab))
        slot, owner = np.full(vocab, -1), np.full(count, -1)
        cursor, peak = np.zeros(1, np.int64), np.zeros(count + 1)
        w1, w2 = np.ascontiguousarray(head.w1), np.ascontiguousarray(head.w2)
        _KEPT[head] = ChildBias(w1, w2, slot, owner, cursor, rows, exps, peak)
    return _KEPT[head]


@njit(cache=True, nogil=True)
def _laws(logits, depth, rows, given, floor, banned, bias, token, logq):
    """Fill token and logq (m, branch): children at `depth` of the nodes of `rows` given tokens."""
    vocab = logits.shape[2]
    row, exps = np.empty(vocab), np.empty(vocab)
    peak, first = 0.0, 0
    for j in range(len(rows)):
        if j == 0 or rows[j] != rows[j - 1]:
            first = j
            row[:] = logits[rows[j], depth]
            row[banned] = -np.inf
            peak = row.max()
            for v in range(vocab):
                exps[v] = np.exp(row[v] - peak)
        same = first
        while given[same] != given[j]:
            same += 1
        if same < j:
            token[j], logq[j] = token[same], logq[same]
        else:
            _law(row, exps, peak, bias, given[j], floor[j], token[j], logq[j])


@njit(cache=True, nogil=True)
def _law(row, exps, peak, bias, given, floor, token, logq):
    """Children of one node into token and logq (branch,): best first, smaller id among equals."""
    at = _bias_row(bias, given)
    shift = bias.rows[at]
    total, log_z = _dot(exps, bias.exps[at]), peak + bias.peak[at]
    least = floor + log_z + np.log(total) if total >= SMALLEST else -np.inf
    count = 0
    for first in range(0, len(row), RUN):
        end = min(first + RUN, len(row))
        if _largest(row, shift, first, end) > least:
            for v in range(first, end):
                x = row[v] + shift[v]
                if x > least:
                    count = _insert(x, v, count, logq, token)
                    least = max(least, logq[-1])
    if total < SMALLEST:
        total, log_z = 0.0, logq[0]
        for v in range(len(row)):
            total += np.exp(row[v] + shift[v] - log_z)
    log_z += np.log(total)
    for c in range(count):
        logq[c] = min(logq[c] - log_z, 0.0)


@njit(cache=True, nogil=True)
def _insert(x, v, count, value, place):
    """Put v, of value x, behind what is at least as good; the new count."""
    at = min(count, len(value) - 1)
    while at > 0 and value[at - 1] < x:
        value[at], place[at] = value[at - 1], place[at - 1]
        at -= 1
    value[at], place[at] = x, v
    return min(count + 1, len(value))


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def _largest(x, y, first, end):
    """Largest of x + y in first..end - 1: most runs hold no child, and need no look at each."""
    most = -np.inf
    for v in range(first, end):
        most = max(most, x[v] + y[v])
    return most


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def _dot(x, y):
    total = 0.0
    for v in range(len(x)):
        total += x[v] * y[v]
    return total


@njit(cache=True, nogil=True)
def _bias_row(bias, token):
    """Row of a parent token, computed if need be in place of the oldest."""
    if token < 0:
        return len(bias.owner)
    if bias.slot[token] >= 0:
        return bias.slot[token]
    at = bias.cursor[0]
    bias.cursor[0] = (at + 1) % len(bias.owner)
    if bias.owner[at] >= 0:
        bias.slot[bias.owner[at]] = -1
    bias.owner[at], bias.slot[token] = token, at
    row = bias.rows[at]
    row[:] = 0.0
    for k in range(bias.w1.shape[1]):
        factor = bias.w1[token, k]
        for v in range(len(row)):
            row[v] += factor * bias.w2[k, v]
    bias.peak[at] = row.max()
    for v in range(len(row)):
        bias.exps[at, v] = np.exp(row[v] - bias.peak[at])
    return at


@njit(cache=True, nogil=True)
def _best_of_groups(score, first, place, value):
    for g in range(len(first) - 1):
        count = 0
        for j in range(first[g], first[g + 1]):
            if score[j] > value[g, -1]:
                count = _insert(score[j], j, count, value[g], place[g])
