"""Slow reference for sampled trees along a recorded text: heaps, lists and raw arrays.

Shares no code with `simulator.orders` or with the recording's readers of laws.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from traces.common.keyed_noise import ACCEPT, DRAW, ROOT_KEY, keyed_uniform, step_key


@dataclass
class Node:
    """One admitted slot, or the anchor; parent is an index in the list of nodes, -1 the anchor."""

    score: float
    depth: int
    parent: int
    token: int
    key: int
    survival: float  # log
    accepted: bool
    drawn: list = field(default_factory=list)
    left: dict = field(default_factory=dict)  # token: q at the draft temperature, not drawn yet
    first_q: dict = field(default_factory=dict)  # token: q at temperature 1
    p: dict = field(default_factory=dict)  # token: the target's law after the rejections so far


def softmax(logits: np.ndarray) -> np.ndarray:
    weight = np.exp(logits - logits.max())
    return weight / weight.sum()


def draft_laws(recording, anchor: int, depth: int, parent: int, temperature: float):
    """(q at temperature 1, q at `temperature`) by token, in the sequence of candidates."""
    if recording.encoding == "pool":
        tokens = recording["pool_token"][anchor, depth].tolist()
        logq = recording["pool_logprob"][anchor, depth].astype(np.float64)
        return dict(zip(tokens, np.exp(logq))), dict(zip(tokens, softmax(logq / temperature)))
    logits = recording["head"].astype(np.float64) @ recording["hidden"][anchor, depth]
    logits = logits + recording["markov_w2"].astype(np.float64) @ recording["markov_w1"][parent]
    logits[list(recording.banned_tokens)] = -np.inf
    return dict(enumerate(softmax(logits))), dict(enumerate(softmax(logits / temperature)))


def target_law(recording, sequence: int, output: int) -> dict:
    """The law of an output of a sequence, by token."""
    before = (recording["output_len"][:sequence].astype(int) + recording.depths).sum()
    head = recording["head" if recording.meta["shared_head"] else "target_head"]
    logits = head.astype(np.float64) @ recording["target_hidden"][before + output]
    logits[list(recording.banned_tokens)] = -np.inf
    return dict(enumerate(softmax(logits / recording.temperature)))


def log_edge(q: float, platt) -> float:
    if platt is None:
        return math.log(q)
    q = min(q, 1 - 1e-9)
    return -math.log1p(math.exp(-(platt[0] * math.log(q / (1 - q)) + platt[1])))


def grow(recording, sequence: int, output: int, seed: int, order, temperature: float) -> list[Node]:
    """The tree of one anchor, which is an output of a sequence."""
    counts = recording["output_len"].astype(int) - 1
    anchor = int(counts[:sequence].sum()) + output
    at = int(recording["anchor_pos"][anchor])
    text = recording["tokens"][at + 1 : at + 1 + recording.depths].tolist()
    root = Node(0.0, 0, -2, int(recording["tokens"][at]), ROOT_KEY, 0.0, True)
    nodes: list[Node] = []
    heap: list = []
    ticks = itertools.count()
    cap = order.depth_cap or (len(order.confidence) if order.confidence else recording.depths)

    def push(node: int, bound: float) -> None:
        heapq.heappush(heap, (-bound, next(ticks), node))

    def bound_of(node: Node) -> float:
        if order.confidence is not None:
            state = recording["hidden"][anchor, node.depth].astype(np.float64)
            parent = recording["markov_w1"][node.token].astype(np.float64)
            logit = state @ recording["confidence_hidden"].astype(np.float64)
            logit += parent @ recording["confidence_parent"] + recording["confidence_bias"][0]
            z = logit / order.confidence[node.depth]
            return node.survival - math.log1p(math.exp(-z))
        best = max(q for token, q in node.first_q.items() if token in node.left)
        return node.survival + log_edge(best, order.platt)

    push(-1, 0.0)
    while heap and len(nodes) < order.nodes:
        negative, _, index = heapq.heappop(heap)
        node = root if index < 0 else nodes[index]
        if not node.left and not node.drawn:
            node.first_q, node.left = draft_laws(
                recording, anchor, node.depth, node.token, temperature
            )
            node.p = target_law(recording, sequence, output + 1 + node.depth)
            push(index, bound_of(node))
            continue
        slot = step_key(node.key, len(node.drawn))
        found = any(nodes[child].accepted for child in node.drawn)
        x = text[node.depth] if node.accepted and not found else None
        token, accepted = draw(node, x, partial(keyed_uniform, seed, output, slot))
        mass = sum(q for other, q in node.left.items() if other != token)
        node.left = {t: q / mass for t, q in node.left.items() if t != token and mass > 0}
        survival = node.survival + log_edge(node.first_q[token], order.platt)
        if order.confidence is not None:
            survival = -negative
        child = Node(
            -negative, node.depth + 1, index, token, step_key(slot, token), survival, accepted
        )
        node.drawn.append(len(nodes))
        nodes.append(child)
        if child.depth < cap:
            push(len(nodes) - 1, survival)
        if len(node.drawn) < order.branch and node.left:
            push(index, bound_of(node))
    return nodes


def draw(node: Node, x: int | None, uniform) -> tuple[int, bool]:
    """One child, given that the text goes on with x if `node` is accepted and looks for it."""
    if x is None:
        return at_share(node.left, uniform(DRAW)), False
    q, p = node.left, node.p
    if uniform(ACCEPT) < min(1.0, q.get(x, 0.0) / p[x]):
        return x, True
    over = {token: max(mass - p[token], 0.0) for token, mass in q.items()}
    total = sum(over.values())
    node.p = {token: max(p[token] - q.get(token, 0.0), 0.0) / total for token in p}
    return at_share({token: mass / total for token, mass in over.items()}, uniform(DRAW)), False


def at_share(law: dict, u: float) -> int:
    for token, mass in law.items():
        if u < mass:
            return token
        u -= mass
    return max(law, key=law.get)
