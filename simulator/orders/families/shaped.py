"""Any static tree, node by node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from simulator.orders.families.blockwise import CHUNK, BlockwiseOrder, Grown
from simulator.orders.scores import BlockScores, head_of, held, recorded_block
from simulator.orders.shape import limited_scores, within
from simulator.orders.specs import MAX_NODES, SCORES, _choice, _count
from traces.common.errors import InputError
from traces.recordings.recording import Recording


@dataclass(frozen=True, slots=True)
class ShapeOrder(BlockwiseOrder):
    """A tree whose shape ignores the scores, emitted as listed and verified whole.

    parents: index of every node's parent in the list, -1 = the anchor, before the node itself.
    ranks: 0-based, which of its parent's children it is. prefixes: widths other than the whole at
    which it may be verified too. scores as in BestFirstOrder.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    scores: str = "auto"
    prefixes: tuple[int, ...] = ()
    nested: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _choice("ShapeOrder scores", self.scores, SCORES)
        for name in ("parents", "ranks", "prefixes"):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        count = len(self.parents)
        if not 1 <= count <= MAX_NODES or len(self.ranks) != count:
            raise InputError(
                f"ShapeOrder: {count} parents and {len(self.ranks)} ranks, accepted: as many, "
                f"1 to {MAX_NODES}"
            )
        for node, (parent, rank) in enumerate(zip(self.parents, self.ranks, strict=True)):
            if not -1 <= parent < node or rank < 0:
                raise InputError(
                    f"ShapeOrder node {node}: parent {parent}, rank {rank}, accepted: a parent "
                    f"from -1 to {node - 1} and a rank of at least 0"
                )
        if len(set(zip(self.parents, self.ranks, strict=True))) < count:
            raise InputError("ShapeOrder: two nodes with the same parent and rank")
        for width in self.prefixes:
            _count("ShapeOrder prefixes", width)
            within("ShapeOrder prefixes", width, count, "nodes", "the shape")

    @property
    def depths(self) -> tuple[int, ...]:
        """1-based depth of every node."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    def limited(self, depths: int, ranks: int, conditioned: bool, source: str) -> ShapeOrder:
        within("ShapeOrder depths", max(self.depths), depths, "depths", source)
        within("ShapeOrder rank", max(self.ranks) + 1, ranks, "ranks per depth", source)
        return replace(self, scores=limited_scores(self.scores, conditioned))

    def grow(self, block: BlockScores) -> Grown:
        from simulator.orders.kernels.children import Children

        parents, ranks, depths = (np.array(x) for x in (self.parents, self.ranks, self.depths))
        children = Children(block, self.scores, max(self.ranks) + 1)
        n, count = children.size, len(parents)
        # the anchor in an extra last slot, where parent -1 finds it
        score, token = np.zeros((n, count + 1)), np.empty((n, count + 1), np.int64)
        token[:, -1] = children.anchor_token
        for depth in range(1, depths.max() + 1):
            layer = np.flatnonzero(depths == depth)
            above, which = np.unique(parents[layer], return_inverse=True)
            rows = np.repeat(np.arange(n), len(above))
            found = children.of(depth - 1, rows, token[:, above].ravel())
            tokens, logq = (
                part.reshape(n, len(above), -1)[:, which, ranks[layer]] for part in found
            )
            token[:, layer], score[:, layer] = tokens, score[:, parents[layer]] + logq
        return _closed(score[:, :-1], np.broadcast_to(depths, (n, count)), parents, token[:, :-1])


def _closed(score, depth, parents, token) -> Grown:
    """Rows without the nodes that do not exist, at -inf; they leave no gaps."""
    parent = np.broadcast_to(parents, score.shape)
    exists = score > -np.inf
    if exists.all():
        return Grown(score, depth, parent, token)
    order = np.argsort(~exists, axis=1, kind="stable")
    place = np.cumsum(exists, axis=1) - 1  # (n, M) of the nodes that exist
    parent = np.where(parent >= 0, np.take_along_axis(place, np.maximum(parent, 0), axis=1), -1)
    parts = (np.take_along_axis(part, order, axis=1) for part in (score, depth, parent, token))
    return Grown(*parts)


def _whole(name: str, values) -> tuple[int, ...]:
    listed = isinstance(values, Iterable) and not isinstance(values, str)
    values = tuple(values) if listed else ()
    whole = all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values)
    if not listed or not whole:
        raise InputError(f"ShapeOrder {name}: accepted: a list of integers")
    return tuple(map(int, values))


# ---------------- Which of its parent's children each realised token is.


def realised_ranks(
    recording: Recording, anchors: np.ndarray, branch: int, scores: str = "auto"
) -> np.ndarray:
    """0-based rank of every realised token below its true parent: (n, D), `branch` if not there.

    scores as in BestFirstOrder. A recorded pool with fewer ranks than `branch` ends the search.
    """
    from simulator.orders.kernels.children import Children

    _, ranks, conditioned = held(recording)
    kind, kept = limited_scores(scores, conditioned), min(branch, ranks)
    head = head_of(recording)
    parts = [np.zeros((0, recording.depths), np.int64)]
    for first in range(0, len(anchors), CHUNK):
        some = anchors[first : first + CHUNK]
        children, rows = (
            Children(recorded_block(recording, some, head), kind, kept),
            np.arange(len(some)),
        )
        realised = recording.realised(some)
        parents = np.column_stack([recording.anchor_tokens(some), realised[:, :-1]])
        found = np.full(realised.shape, branch)
        for depth in range(recording.depths):
            token, _ = children.of(depth, rows, parents[:, depth])
            match = token == realised[:, depth, None]
            found[:, depth] = np.where(match.any(axis=1), match.argmax(axis=1), branch)
        parts.append(found)
    return np.concatenate(parts)
