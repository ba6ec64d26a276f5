"""Slow references for orders over lists and layers: Python heaps, lists and sorts on raw scores."""

from __future__ import annotations

import heapq
import math

import numpy as np

from simulator.orders import ABSENT
from tests.naive_orders import Node, children, walk


def ddtree(recording, anchor, *, nodes, kind="marginal", branch=None, cap=None) -> list[Node]:
    """Pop, emit, push next sibling and first child; heap keys (-score, tuple of ranks)."""
    cap = recording.depths if cap is None else cap
    token = int(recording.anchor_tokens(np.array([anchor]))[0])
    lists = [
        children(recording, anchor, depth, token, kind, branch or nodes)
        for depth in range(1, cap + 1)
    ]
    heap, emitted, index = [(-lists[0][0][1], (0,))], [], {(): -1}
    while heap and len(emitted) < nodes:
        key, ranks = heapq.heappop(heap)
        above, row = ranks[:-1], lists[len(ranks) - 1]
        start = emitted[index[above]].score if above else 0.0
        index[ranks] = len(emitted)
        emitted.append(Node(-key, len(ranks), index[above], row[ranks[-1]][0]))
        if ranks[-1] + 1 < len(row):
            offer = start + row[ranks[-1] + 1][1]
            heapq.heappush(heap, (-offer, (*above, ranks[-1] + 1)))
        if len(ranks) < cap:
            heapq.heappush(heap, (key - lists[len(ranks)][0][1], (*ranks, 0)))
    return emitted


def beam(recording, anchor, *, branch, beam, nodes, kind="parent", cap=None, min_gain=None):
    """The whole pool, layer by layer, then sorted."""
    root = int(recording.anchor_tokens(np.array([anchor]))[0])
    pool: list[Node] = []  # parent is an index in the pool
    frontier, before = [-1], 0.0
    for depth in range(1, (cap or recording.depths) + 1):
        layer = []
        for parent in frontier:
            token = root if parent < 0 else pool[parent].token
            start = 0.0 if parent < 0 else pool[parent].score
            for child, logq in children(recording, anchor, depth, token, kind, branch):
                layer.append(len(pool))
                pool.append(Node(start + logq, depth, parent, child))
        frontier = sorted(layer, key=lambda i: -pool[i].score)[:beam]  # stable: earlier parent
        masses = sorted((math.exp(node.score) for node in pool), reverse=True)
        expected = sum(masses[:beam])
        if min_gain is not None and expected - before <= min_gain:
            break
        before = expected
    order = sorted(range(len(pool)), key=lambda i: (-pool[i].score, pool[i].depth, i))[:nodes]
    place = {-1: -1} | {i: rank for rank, i in enumerate(order)}
    return [Node(n.score, n.depth, place[n.parent], n.token) for n in (pool[i] for i in order)]


def shape(recording, anchor, parents, ranks, kind="parent") -> list[Node]:
    """Nodes of a static tree as listed."""
    root = int(recording.anchor_tokens(np.array([anchor]))[0])
    nodes: list[Node] = []
    for parent, rank in zip(parents, ranks, strict=True):
        above = Node(0.0, 0, -2, root) if parent < 0 else nodes[parent]
        row = children(recording, anchor, above.depth + 1, above.token, kind, rank + 1)
        nodes.append(Node(above.score + row[rank][1], above.depth + 1, parent, row[rank][0]))
    return nodes


def check_rows(table, recording, reference, step: int = 1) -> None:
    """Every `step`-th row of the table is the list of the reference, hit ranks are its walk."""
    for anchor in range(0, recording.num_anchors, step):
        emitted = reference(anchor)
        count = len(emitted)
        assert table.size[anchor] == count
        for name in ("token", "parent", "depth"):
            expected = [getattr(node, name) for node in emitted]
            assert getattr(table, name)[anchor, :count].tolist() == expected, (name, anchor)
        np.testing.assert_allclose(
            table.score[anchor, :count], [n.score for n in emitted], rtol=0, atol=1e-9
        )
        assert (table.score[anchor, count:] == -np.inf).all()
        assert (table.parent[anchor, count:] == -1).all()
        realised = recording.realised(np.array([anchor]))[0].tolist()
        ranks = [ABSENT if r is None else r for r in walk(emitted, realised)]
        assert table.hit_rank[anchor].tolist() == ranks


def check_live(spec, recording, table, build_block, blocks) -> None:
    """Blocks of the anchors 40, 3 and 17 get the rows of the recording's table."""
    anchors = np.array([40, 3, 17])
    for block in blocks(recording, anchors):
        live = build_block(spec, block, recording.realised(anchors))
        for name in ("token", "parent", "depth", "size", "hit_rank", "ties"):
            one, other = getattr(live, name), getattr(table, name)
            assert (one.dtype, one.shape[1:]) == (other.dtype, other.shape[1:]), name
            assert (one == other[anchors]).all(), name
        np.testing.assert_allclose(live.score, table.score[anchors], rtol=0, atol=1e-9)
    unknown = build_block(spec, block)
    assert (unknown.hit_rank == ABSENT).all()
    assert (unknown.token == live.token).all()
