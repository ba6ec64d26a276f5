"""Slow reference for orders: explicit heaps and loops over raw scores, for tests and benchmarks.

Shares no code with `simulator.orders`: laws are computed from the recorded arrays, trees are
Python lists of nodes, the realised path is walked.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np


@dataclass
class Node:
    """One emitted node; parent is an index in the list of nodes, -1 the anchor."""

    score: float
    depth: int
    parent: int
    token: int


def law(recording, anchor: int, depth: int, parent: int | None) -> tuple[list[int], list[float]]:
    """Tokens and log q at 1-based `depth`, best first, smaller id first among equals.

    parent: its token, or None for the law without Markov bias.
    """
    if recording.encoding == "pool":
        row = recording["pool_logprob"][anchor, depth - 1].astype(np.float64)
        return recording["pool_token"][anchor, depth - 1].tolist(), row.tolist()
    state = recording["hidden"][anchor, depth - 1].astype(np.float64)
    logits = recording["head"].astype(np.float64) @ state
    if parent is not None and "markov_w1" in recording:
        row = recording["markov_w1"][parent].astype(np.float64)
        logits = logits + recording["markov_w2"].astype(np.float64) @ row
    logits[list(recording.banned_tokens)] = -np.inf
    peak = logits.max()
    logq = logits - peak - math.log(np.exp(logits - peak).sum())
    order = sorted(range(len(logq)), key=lambda v: (-logq[v], v))
    return order, logq[order].tolist()


def children(recording, anchor: int, depth: int, parent: int, kind: str, branch: int):
    """(token, log q) of the top `branch` children of a node whose token is `parent`."""
    given = None if kind == "marginal" else parent
    if kind == "marginal_biased":  # the greedy chain's token one depth above
        given = int(recording.anchor_tokens(np.array([anchor]))[0])
        for above in range(1, depth):
            given = law(recording, anchor, above, given)[0][0]
    tokens, logq = law(recording, anchor, depth, given)
    return list(zip(tokens, logq, strict=True))[:branch]


def edge_score(logq: float, platt: tuple[float, float] | None) -> float:
    """log q, or log sigmoid(a logit q + b), from the definition."""
    if platt is None:
        return logq
    q = min(math.exp(logq), 1 - 1e-9)
    return math.log(1 / (1 + math.exp(-(platt[0] * math.log(q / (1 - q)) + platt[1]))))


def best_first(
    recording, anchor, *, nodes=63, branch=8, cap=None, ties="depth", kind="parent", platt=None
) -> list[Node]:
    """Pop, emit, push all children; heap keys as published (CAST's or TreeSpark's)."""
    cap = recording.depths if cap is None else cap
    emitted: list[Node] = []
    heap: list = []
    tick = 0

    def push(parent: int, token: int, depth: int, above: float) -> None:
        nonlocal tick
        kids = children(recording, anchor, depth, token, kind, branch)
        for rank, (kid, logq) in enumerate(kids):
            score = above + edge_score(logq, platt)
            key = (-score, depth, parent, rank, tick) if ties == "depth" else (-score, tick)
            heapq.heappush(heap, (key, Node(score, depth, parent, kid)))
            tick += 1

    push(-1, int(recording.anchor_tokens(np.array([anchor]))[0]), 1, 0.0)
    while heap and len(emitted) < nodes:
        node = heapq.heappop(heap)[1]
        emitted.append(node)
        if node.depth < cap:
            push(len(emitted) - 1, node.token, node.depth + 1, node.score)
    return emitted


def walk(emitted: list[Node], realised) -> list[int | None]:
    """1-based rank of each realised token's node along the path, None once it is lost."""
    ranks: list[int | None] = []
    at: int | None = -1
    for depth, token in enumerate(realised, start=1):
        found = None
        for index, node in enumerate(emitted):
            if at is not None and (node.parent, node.depth, node.token) == (at, depth, token):
                found = index
        ranks.append(None if found is None else found + 1)
        at = found
    return ranks


def replay(recording, orders: dict[int, list[Node]], sequence: int, width: int):
    """(rounds, tokens, accepted, hits by depth) of one sequence, the first `width` nodes a round.

    orders: emitted nodes of every anchor.
    """
    first = int(recording.anchor_counts[:sequence].sum())
    last = first + int(recording["output_len"][sequence]) - 1  # anchors are outputs 0..L-2
    rounds = tokens = total = 0
    hits = [0] * recording.depths
    anchor = first
    while anchor < last:
        realised = recording.realised(np.array([anchor]))[0]
        accepted = sum(rank is not None for rank in walk(orders[anchor][:width], realised))
        rounds += 1
        total += accepted
        for depth in range(accepted):
            hits[depth] += 1
        commit = min(accepted + 1, last - anchor)
        tokens += commit
        anchor += commit
    return rounds, tokens, total, hits
