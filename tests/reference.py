"""Slow reference for drafts: explicit trees from raw scores, walked token by token.

Starts from a recording's arrays (`pool_token`, or `hidden`, `head` and Markov factors), computes
the drafter's laws itself, grows trees of node objects and walks down them along the target's own
tokens. Shares no code with the simulator's orders. Further trees: `tests.reference_orders`; what
policies make of them: `tests.reference_rules`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

TOP = 8  # children looked at where a rule does not say
NEAR = 1e-12  # log-scores closer than this are equal up to rounding

Children = list[tuple[int, float]]  # (token, log q), best first


@dataclass(eq=False, slots=True)
class Node:
    """A draft token in its tree; the root stands for the anchor, the last committed token."""

    token: int
    parent: Node | None = None
    depth: int = 0  # of the root; 1 is the first draft token
    rank: int = 0  # among its siblings
    score: float = 0.0  # log survival of the path
    place: int = -1  # in the order of admission; -1: the root, or not admitted
    children: list[Node] = field(default_factory=list)  # admitted ones

    def path(self) -> tuple[int, ...]:
        """Tokens from depth 1 down to this node."""
        return () if self.parent is None else (*self.parent.path(), self.token)


@dataclass(eq=False, slots=True)
class Tree:
    """The verified tree of one request, and how it was decided."""

    root: Node
    nodes: list[Node] = field(default_factory=list)  # verified, in the order of admission
    rejected: list[Node] = field(default_factory=list)  # looked at and not verified
    cut: float | None = None  # log score at which nodes stopped being verified; None: by shape

    def admit(self, node: Node) -> None:
        node.place = len(self.nodes)
        node.parent.children.append(node)
        self.nodes.append(node)

    def paths(self) -> frozenset[tuple[int, ...]]:
        return frozenset(node.path() for node in self.nodes)

    def first(self, width: int, cut: float | None = None) -> Tree:
        """The tree of the first `width` nodes; the nodes themselves are shared."""
        kept, left = self.nodes[:width], self.nodes[width:]
        return Tree(self.root, kept, [*left, *self.rejected], cut)

    def accepted(self, future: Iterable[int]) -> list[int]:
        """Draft tokens on the way down along `future`, the target's tokens behind the anchor."""
        node, tokens = self.root, []
        for token in future:
            below = (child for child in node.children if child.place < len(self.nodes))
            node = next((child for child in below if child.token == token), None)
            if node is None:
                break
            tokens.append(node.token)
        return tokens

    def decided_by_rounding(self, paths: Iterable[tuple[int, ...]]) -> bool:
        """Whether every one of `paths` was looked at and scores the cut, up to rounding."""
        scores = {node.path(): node.score for node in (*self.nodes, *self.rejected)}
        gaps = [abs(scores.get(path, math.inf) - (self.cut or 0.0)) for path in paths]
        return self.cut is not None and all(gap <= NEAR for gap in gaps)


class RawScores:
    """The drafter's laws, recomputed in float64 from the arrays of a recording."""

    def __init__(self, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        self._arrays, self._banned = arrays, list(meta["banned_tokens"])
        self.pooled = meta["encoding"] == "pool"
        self.depths = arrays["pool_token" if self.pooled else "hidden"].shape[1]
        if not self.pooled:
            self._head = arrays["head"].astype(np.float64)  # (V, d)
        self._base: dict[int, np.ndarray] = {}
        self._bias: dict[int, np.ndarray] = {}
        self._laws: dict[tuple, tuple[int, Children]] = {}  # with how many were asked for

    def anchor_token(self, anchor: int) -> int:
        return int(self._arrays["tokens"][self._arrays["anchor_pos"][anchor]])

    def future(self, anchor: int, count: int | None = None) -> list[int]:
        """The target's tokens behind the anchor, `count` of them (None: one per depth)."""
        first = int(self._arrays["anchor_pos"][anchor]) + 1
        return self._arrays["tokens"][first : first + (count or self.depths)].tolist()

    def children(self, anchor: int, depth: int, parent: int | None, count: int = TOP) -> Children:
        """The `count` likeliest tokens at 0-based `depth` under token `parent`, if there are.

        parent None: no Markov bias.
        """
        key = (anchor, depth, None if self.pooled else parent)
        if key not in self._laws or self._laws[key][0] < count:
            listed = self._pool if self.pooled else self._conditional
            self._laws[key] = count, listed(*key, count)
        return self._laws[key][1][:count]

    def _pool(self, anchor: int, depth: int, _parent: None, count: int) -> Children:
        tokens = self._arrays["pool_token"][anchor, depth, :count].tolist()
        return list(zip(tokens, self._arrays["pool_logprob"][anchor, depth].tolist()))

    def _conditional(self, anchor: int, depth: int, parent: int | None, count: int) -> Children:
        if anchor not in self._base:
            hidden = self._arrays["hidden"][anchor].astype(np.float64)  # (D, d)
            self._base[anchor] = hidden @ self._head.T  # (D, V)
        logits = self._base[anchor][depth].copy()
        if parent is not None and "markov_w1" in self._arrays:
            logits += self._markov(parent)
        logits[self._banned] = -np.inf
        peak = logits.max()
        logq = logits - (peak + math.log(np.exp(logits - peak).sum()))
        least = np.partition(logq, -count)[-count] if count < len(logq) else -np.inf
        best = np.flatnonzero((logq >= least) & (logq > -np.inf))
        best = best[np.lexsort((best, -logq[best]))][:count]
        return list(zip(best.tolist(), logq[best].tolist()))

    def confidence(self, anchor: int, depth: int, parent: int) -> float | None:
        """Logit of the confidence head at 0-based `depth` under token `parent`, if recorded."""
        names = ("confidence_hidden", "confidence_parent", "confidence_bias")
        if names[0] not in self._arrays:
            return None
        state, factor, bias = (self._arrays[name].astype(np.float64) for name in names)
        seen = self._arrays["hidden"][anchor, depth].astype(np.float64)
        above = self._arrays["markov_w1"][parent].astype(np.float64)
        return float(seen @ state + above @ factor + bias[0])

    def _markov(self, parent: int) -> np.ndarray:
        if parent not in self._bias:
            w1, w2 = self._arrays["markov_w1"][parent], self._arrays["markov_w2"]
            self._bias[parent] = w2.astype(np.float64) @ w1.astype(np.float64)  # (V,)
        return self._bias[parent]


# ---------------------------------------------------------------- trees


def chain(raw: RawScores, anchor: int, length: int) -> Tree:
    """The likeliest token under the likeliest token, `length` deep (DFlash, DSpark)."""
    tree = Tree(Node(raw.anchor_token(anchor)))
    tip = tree.root
    for depth in range(length):
        token, logq = raw.children(anchor, depth, tip.token)[0]
        tip = Node(token, tip, depth + 1, 0, tip.score + logq)
        tree.admit(tip)
    return tree


def lister(
    raw: RawScores, anchor: int, scores: str, count: int = TOP
) -> Callable[[Node], Children]:
    """Up to `count` children of a node: under its own token, or one list per depth for all."""
    if scores in ("auto", "parent"):
        return lambda node: raw.children(anchor, node.depth, node.token, count)
    if scores == "marginal":
        return lambda node: raw.children(anchor, node.depth, None, count)
    greedy = chain(raw, anchor, raw.depths)
    before = [greedy.root.token, *(node.token for node in greedy.nodes)]
    return lambda node: raw.children(anchor, node.depth, before[node.depth], count)


def calibrated(logq: float, a: float, b: float) -> float:
    """log sigmoid(a logit q + b), q held to 1 - 1e-9 (TreeSpark, arXiv 2609.22098)."""
    q = min(math.exp(logq), 1 - 1e-9)
    return -math.log(1 + math.exp(-a * math.log(q / (1 - q)) - b))


def by_depth(node: Node, tick: int) -> tuple:
    """CAST's ties (arXiv 2610.00321): shallower, then earlier parent, then lower rank."""
    return (-node.score, node.depth, node.parent.place, node.rank)


def by_push(node: Node, tick: int) -> tuple:
    """TreeSpark's ties (arXiv 2609.22098): whichever was looked at earlier."""
    return (-node.score, tick)


def best_first(
    raw: RawScores,
    anchor: int,
    nodes: int,
    scores: str = "auto",
    key: Callable[[Node, int], tuple] = by_depth,
    branch: int = TOP,
    edge: Callable[[float], float] = float,
    least: float | None = None,
) -> Tree:
    """Admit the best node looked at so far, look at its children, repeat.

    Ends at `nodes` nodes, at the first best node that scores under `least`, or with none left.
    `edge` turns a log-probability into the log weight of an edge.
    """
    tree, waiting, tick = Tree(Node(raw.anchor_token(anchor))), [], 0
    listed, node = lister(raw, anchor, scores, branch), tree.root
    while len(tree.nodes) < nodes:
        below = listed(node) if node.depth < raw.depths else []
        for rank, (token, logq) in enumerate(below):
            child = Node(token, node, node.depth + 1, rank, node.score + edge(logq))
            heapq.heappush(waiting, (key(child, tick), tick, child))
            tick += 1
        if not waiting:
            break
        node = waiting[0][-1]
        if least is not None and node.score < least:
            tree.cut = least
            break
        heapq.heappop(waiting)
        tree.admit(node)
        tree.cut = node.score
    tree.rejected = [node for *_, node in waiting]
    return tree


def shaped(
    raw: RawScores, anchor: int, levels: Sequence[tuple[int | None, int]], scores: str = "auto"
) -> Tree:
    """A tree of fixed shape: per depth (nodes, None for all; children looked at per node).

    The nodes of a depth are those of the smallest sums of ranks along their path, ties to the
    earlier parent, then the lower rank; where all are taken they stay parent by parent.
    """
    tree = Tree(Node(raw.anchor_token(anchor)))
    listed, level = lister(raw, anchor, scores), [(0, tree.root)]
    for count, branch in levels:
        below = []
        for total, node in level:
            for rank, (token, logq) in enumerate(listed(node)[:branch]):
                child = Node(token, node, node.depth + 1, rank, node.score + logq)
                below.append((total + rank, node.place, rank, child))
        if count is not None:
            below.sort(key=lambda entry: entry[:3])
        level = [(total, child) for total, _, _, child in below[:count]]
        for _, child in level:
            tree.admit(child)
    return tree
