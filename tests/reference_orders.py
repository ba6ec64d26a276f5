"""Slow reference for the further drafts: lists, layers, given shapes, chains with evidence.

Every order of a policy whose widths depend on its state or on costs has a tree here; the policy
then decides on this tree's arrays instead of a table's.
"""

from __future__ import annotations

import copy
import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simulator.orders import ABSENT, BlockScores, DraftHead, build_block
from tests.reference import (
    Node,
    RawScores,
    Tree,
    best_first,
    by_depth,
    by_push,
    calibrated,
    chain,
    lister,
    shaped,
)

MOST = math.log((1 - 1e-9) / 1e-9)  # logit of the largest q that is told from 1


def by_ranks(raw: RawScores, anchor: int, nodes: int, scores: str, branch: int) -> Tree:
    """DDTree (arXiv 2604.12989): one list per depth; ties to the smaller tuple of ranks."""
    tree, listed = Tree(Node(raw.anchor_token(anchor))), lister(raw, anchor, scores, branch)
    waiting: list[tuple] = []

    def offer(parent: Node, rank: int, above: tuple[int, ...]) -> None:
        row = listed(parent) if parent.depth < raw.depths else []
        if rank < len(row):
            token, logq = row[rank]
            node = Node(token, parent, parent.depth + 1, rank, parent.score + logq)
            heapq.heappush(waiting, (-node.score, (*above, rank), node))

    offer(tree.root, 0, ())
    while waiting and len(tree.nodes) < nodes:
        _, ranks, node = heapq.heappop(waiting)
        tree.admit(node)
        tree.cut = node.score
        offer(node.parent, node.rank + 1, ranks[:-1])
        offer(node, 0, ranks)
    tree.rejected = [node for *_, node in waiting]
    return tree


def layers(
    raw: RawScores,
    anchor: int,
    branch: int,
    beam: int,
    nodes: int,
    depth_cap: int | None = None,
    min_gain: float | None = None,
    scores: str = "auto",
) -> Tree:
    """EAGLE-2, PCTree and OPT-Tree: the best `beam` nodes of a layer get children, all are ranked.

    Ties to the shallower node, then the earlier one. OPT-Tree's E is the mass of the best `beam`
    nodes so far; a layer that adds no more than `min_gain` is the last.
    """
    tree = Tree(Node(raw.anchor_token(anchor)))
    listed, pool, frontier, mass = lister(raw, anchor, scores, branch), [], [tree.root], 0.0
    for _ in range(min(depth_cap or raw.depths, raw.depths)):
        layer = [
            Node(token, parent, parent.depth + 1, rank, parent.score + logq)
            for parent in frontier
            for rank, (token, logq) in enumerate(listed(parent))
        ]
        pool += layer
        frontier = sorted(layer, key=lambda node: -node.score)[:beam]
        before, mass = mass, sum(heapq.nlargest(beam, (math.exp(node.score) for node in pool)))
        if min_gain is not None and mass - before <= min_gain:
            break
    pool.sort(key=lambda node: (-node.score, node.depth))  # stable
    for node in pool[:nodes]:
        tree.admit(node)
        tree.cut = node.score
    tree.rejected = pool[nodes:]
    return tree


def listed_tree(raw: RawScores, anchor: int, parents: Sequence[int], ranks: Sequence[int]) -> Tree:
    """The tree whose nodes are these children of these nodes, -1 the anchor."""
    tree = Tree(Node(raw.anchor_token(anchor)))
    for above, rank in zip(parents, ranks, strict=True):
        parent = tree.root if above < 0 else tree.nodes[above]
        token, logq = raw.children(anchor, parent.depth, parent.token, rank + 1)[rank]
        tree.admit(Node(token, parent, parent.depth + 1, rank, parent.score + logq))
    return tree


def evident_chain(
    raw: RawScores, anchor: int, evidence: str, maps: Sequence[tuple[float, float]] | None
) -> Tree:
    """The likeliest chain, scored by what its evidence says: log sigmoid(a x + b), summed."""
    tree = chain(raw, anchor, raw.depths)
    for node in tree.nodes:
        depth, above = node.depth - 1, node.parent
        (_, best), (_, second) = raw.children(anchor, depth, above.token, 2)
        seen = min(best - second, MOST)
        if evidence == "confidence":
            seen = raw.confidence(anchor, depth, above.token)
        elif evidence == "q":
            seen = min(best - math.log(-math.expm1(best)), MOST)
        a, b = maps[depth] if maps else (1.0, 0.0)
        node.score = above.score + log_sigmoid(a * seen + b)
    return tree


def log_sigmoid(x: float) -> float:
    return x - math.log1p(math.exp(x)) if x < 0 else -math.log1p(math.exp(-x))


def drafted(order: Any, raw: RawScores, anchor: int) -> Tree:
    """The whole tree of an order, told by its own settings."""
    kind, cap = type(order).__name__, getattr(order, "depth_cap", None)
    if cap:
        raw = copy.copy(raw)
        raw.depths = cap
    if kind == "ChainOrder":
        return chain(raw, anchor, order.length or raw.depths)
    if kind == "ScoredChain":
        return evident_chain(raw, anchor, order.evidence, order.maps)
    if kind == "MarginalOrder":
        branch = order.branch or order.nodes
        return by_ranks(raw, anchor, order.nodes, order.scores, branch)
    if kind == "BeamOrder":
        shape = {"branch": order.branch, "beam": order.beam, "nodes": order.nodes}
        return layers(raw, anchor, **shape, min_gain=order.min_gain, scores=order.scores)
    if kind == "ShapeOrder":
        return listed_tree(raw, anchor, order.parents, order.ranks)
    if kind == "StaticOrder":
        tail = [1] * (raw.depths - len(order.widths or ())) if order.tail_chain else []
        levels = [(width, width) for width in [*(order.widths or ()), *tail]]
        if order.branching:
            levels = [(None, branch) for branch in order.branching]
        return shaped(raw, anchor, levels, order.scores)
    if kind == "BestFirstOrder":
        key = {"depth": by_depth, "tick": by_push}[order.ties]
        edge = (lambda logq: calibrated(logq, *order.platt)) if order.platt else float
        shape = {"branch": order.branch, "least": order.floor, "scores": order.scores}
        return best_first(raw, anchor, order.nodes, key=key, edge=edge, **shape)
    raise NotImplementedError(f"no explicit tree of {kind}")


def walked(recording, sequence: int, accepted: Callable[[int], int]):
    """(anchor, accepted) of every round of a text, of which one at `anchor` accepts so many."""
    at, end = (int(anchor) for anchor in recording.anchor_offset[sequence : sequence + 2])
    while at < end:
        hits = int(accepted(at))
        yield at, hits
        at += hits + 1


def check_rows(table, recording, order, step: int = 1) -> None:
    """Every `step`-th row of the table is the order's explicit tree, hit ranks are its walk."""
    raw = RawScores(recording.arrays, recording.meta)
    for anchor in range(0, recording.num_anchors, step):
        tree = drafted(order, raw, anchor)
        nodes, count = tree.nodes, len(tree.nodes)
        assert table.size[anchor] == count
        for name in ("token", "depth"):
            expected = [getattr(node, name) for node in nodes]
            assert getattr(table, name)[anchor, :count].tolist() == expected, (name, anchor)
        assert table.parent[anchor, :count].tolist() == [node.parent.place for node in nodes]
        scores = [node.score for node in nodes]
        np.testing.assert_allclose(table.score[anchor, :count], scores, rtol=0, atol=1e-9)
        assert (table.score[anchor, count:] == -np.inf).all()
        assert (table.parent[anchor, count:] == -1).all()
        node, ranks = tree.root, []
        for token in recording.realised(np.array([anchor]))[0].tolist():
            below = node.children if node else []
            node = next((child for child in below if child.token == token), None)
            ranks.append(node.place + 1 if node else ABSENT)
        assert table.hit_rank[anchor].tolist() == ranks


def blocks_of(recording, anchors):
    """The anchors as live blocks: a pool, or hidden states and logits of one head."""
    if recording.encoding == "pool":
        yield BlockScores(recording["pool_token"][anchors], recording["pool_logprob"][anchors])
        return
    head, token = DraftHead.of(recording), recording.anchor_tokens(anchors)
    hidden = recording["hidden"][anchors]
    yield BlockScores(hidden=hidden, head=head, anchor_token=token)
    yield BlockScores(logits=head.logits(hidden), head=head, anchor_token=token)


def check_live(table, recording, order) -> None:
    """Blocks of the anchors 40, 3 and 17 get the rows of the recording's table."""
    anchors = np.array([40, 3, 17])
    for block in blocks_of(recording, anchors):
        live = build_block(order, block, recording.realised(anchors))
        for name in ("token", "parent", "depth", "size", "hit_rank", "ties"):
            one, other = getattr(live, name), getattr(table, name)
            assert (one.dtype, one.shape[1:]) == (other.dtype, other.shape[1:]), name
            assert (one == other[anchors]).all(), name
        np.testing.assert_allclose(live.score, table.score[anchors], rtol=0, atol=1e-9)
    unknown = build_block(order, block)
    assert (unknown.hit_rank == ABSENT).all()  # nothing realised yet
    assert (unknown.token == live.token).all()


def as_arrays(trees: Sequence[Tree], most: int) -> dict[str, np.ndarray]:
    """Scores, depths, parents and sizes of trees of up to `most` nodes, as a policy sees them."""
    shape = len(trees), most
    score, depth = np.full(shape, -np.inf), np.zeros(shape, np.uint8)
    parent = np.full(shape, -1, np.int16)
    for row, tree in enumerate(trees):
        count = len(tree.nodes)
        score[row, :count] = [node.score for node in tree.nodes]
        depth[row, :count] = [node.depth for node in tree.nodes]
        parent[row, :count] = [node.parent.place for node in tree.nodes]
    size = np.array([len(tree.nodes) for tree in trees], np.int32)
    return {"score": score, "depth": depth, "parent": parent, "size": size}
