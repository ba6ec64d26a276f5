"""What the order families share that need block scores alone: chunks, hit ranks, paddings.

A recording's table is its blocks' tables one after another, so that replay and live agree.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from simulator.orders.scores import BlockScores, gathered, held
from simulator.orders.specs import Columns, Draws, OwnOrder
from simulator.orders.table import ABSENT
from traces.recordings.recording import Recording

CHUNK = 64  # anchors whose full-vocabulary logits are held at once


class Grown(NamedTuple):
    """Nodes of n blocks in order, M slots each, at the front of their rows; the rest unread."""

    score: np.ndarray  # (n, M) float64, -inf where there is no node
    depth: np.ndarray  # (n, M) 1-based
    parent: np.ndarray  # (n, M) index in the row, -1 = the anchor
    token: np.ndarray  # (n, M)


class BlockwiseOrder(OwnOrder):
    """Base of such families: `limited` fills defaults in, `grow` builds n blocks."""

    __slots__ = ()

    def limited(self, depths: int, ranks: int, conditioned: bool, source: str) -> Self:
        """The spec on scores of that shape; InputError, naming `source`, if they hold too little.

        ranks: children known per node. conditioned: whether scores depend on the parent.
        """
        raise NotImplementedError

    def grow(self, block: BlockScores) -> Grown:
        """The nodes of a limited spec."""
        raise NotImplementedError

    def resolved(self, recording: Recording) -> Self:
        return self.limited(*held(recording), recording.source)

    def columns(self, recording: Recording) -> Columns:
        spec, depths = self.resolved(recording), recording.depths

        def rows_of(anchors: np.ndarray, block: BlockScores) -> Columns:
            return as_columns(spec.grow(block), depths, recording.realised(anchors))

        return gathered(recording, CHUNK, rows_of)

    def block_columns(
        self, block: BlockScores, realised: np.ndarray | None, draws: Draws | None
    ) -> Columns:
        _, depths, ranks = block.shape
        spec = self.limited(depths, ranks, block.conditioned, "the block")
        return as_columns(spec.grow(block), depths, realised)


def as_columns(grown: Grown, depths: int, realised: np.ndarray | None) -> Columns:
    """Arrays of an OrderTable. realised (n, D) target tokens; None: nothing is hit."""
    exists = grown.score > -np.inf  # (n, M)
    depth, parent = np.where(exists, grown.depth, 0), np.where(exists, grown.parent, -1)
    token = np.where(exists, grown.token, -1)
    equal = (grown.score[:, 1:] == grown.score[:, :-1]) & exists[:, 1:]
    hit_rank = np.full((len(depth), depths), ABSENT, np.int16)
    at, rows = np.full(len(depth), -1), np.arange(len(depth))  # of the realised path
    for d in range(0 if realised is None else depths):
        node = (depth == d + 1) & (parent == at[:, None]) & (token == realised[:, d : d + 1])
        at = np.where(node.any(axis=1), node.argmax(axis=1), -2)  # no node has parent -2
        hit_rank[rows[at >= 0], d] = at[at >= 0] + 1
    return {
        "score": np.where(exists, grown.score, -np.inf),
        "depth": depth.astype(np.uint8),
        "parent": parent.astype(np.int16),
        "token": token.astype(np.int32),
        "size": exists.sum(axis=1, dtype=np.int32),
        "ties": equal.sum(axis=1, dtype=np.int32),
        "hit_rank": hit_rank,
    }
