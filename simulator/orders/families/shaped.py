"""Any static tree, node by node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from simulator.orders.families.blockwise import CHUNK, BlockwiseOrder, Grown
from simulator.orders.scores import BlockScores, gathered, held
from simulator.orders.specs import (
    COUNT,
    MAX_NODES,
    SCORES,
    Columns,
    check,
    limited_scores,
    one_of,
    whole,
    within,
)
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
        check(self, scores=one_of(SCORES), prefixes=[COUNT])
        check(self, parents=[whole(-1)], ranks=[whole(0)])
        count, nodes = len(self.parents), list(zip(self.parents, self.ranks, strict=False))
        if not 1 <= count <= MAX_NODES or len(self.ranks) != count:
            raise InputError(
                f"ShapeOrder: {count} parents and {len(self.ranks)} ranks, accepted: as many, "
                f"1 to {MAX_NODES}"
            )
        if len(set(nodes)) < count or any(parent >= node for node, (parent, _) in enumerate(nodes)):
            raise InputError(
                "ShapeOrder: two nodes of one parent and rank, or one before its parent; accepted: "
                "neither"
            )
        for width in self.prefixes:
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
        score, token = score[:, :-1], token[:, :-1]
        depth, parent = (np.broadcast_to(part, score.shape) for part in (depths, parents))
        exists = score > -np.inf
        if exists.all():
            return Grown(score, depth, parent, token)
        order = np.argsort(~exists, axis=1, kind="stable")  # nodes that do not exist leave no gaps
        place = np.cumsum(exists, axis=1) - 1  # (n, M) of the nodes that exist
        above = np.take_along_axis(place, np.maximum(parent, 0), axis=1)
        parts = (score, depth, np.where(parent >= 0, above, -1), token)
        return Grown(*(np.take_along_axis(part, order, axis=1) for part in parts))


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

    def ranks_of(some: np.ndarray, block: BlockScores) -> Columns:
        children, rows = Children(block, kind, kept), np.arange(len(some))
        realised = recording.realised(some)
        parents = np.column_stack([recording.anchor_tokens(some), realised[:, :-1]])
        found = np.full(realised.shape, branch)
        for depth in range(recording.depths):
            token, _ = children.of(depth, rows, parents[:, depth])
            match = token == realised[:, depth, None]
            found[:, depth] = np.where(match.any(axis=1), match.argmax(axis=1), branch)
        return {"ranks": found}

    return gathered(recording, CHUNK, ranks_of, "ranks of tokens", anchors)["ranks"]
