"""The order of every anchor as arrays: what policies, replays and bounds read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.orders.specs import Order

ABSENT = 32767  # hit_rank of a realised token that is not in the order
ARRAYS = ("score", "depth", "parent", "token", "size", "hit_rank", "ties")


@dataclass(frozen=True, slots=True, eq=False)
class OrderTable:
    """A anchors (all of the recording, so that row = anchor index), M nodes at most, D depths.

    Rows hold their nodes in order, parents before children, unused slots at the end.
    """

    spec: Order
    anchors: np.ndarray  # (A,) anchor of every row
    score: np.ndarray  # (A, M) float64 log path survival; non-increasing if nested; -inf padding
    depth: np.ndarray  # (A, M) uint8 1-based, 0 padding
    parent: np.ndarray  # (A, M) int16 index in the row, -1 = the anchor, also in padding
    token: np.ndarray  # (A, M) int32, -1 padding
    size: np.ndarray  # (A,) int32 nodes that exist
    hit_rank: np.ndarray  # (A, D) int16 1-based rank of each realised token, ABSENT if not there
    ties: np.ndarray  # (A,) int32 neighbours in the order with exactly equal scores

    def __post_init__(self) -> None:
        for name in ("anchors", *ARRAYS):  # tables are shared through the cache
            getattr(self, name).setflags(False)  # by name it takes twice as long

    @property
    def nested(self) -> bool:
        """Whether any first w nodes may be verified, or only the whole (and declared prefixes)."""
        return self.spec.nested

    @property
    def max_nodes(self) -> int:
        return self.score.shape[1]

    @property
    def depths(self) -> int:
        return self.hit_rank.shape[1]

    def accepted(self, anchors: np.ndarray, width: np.ndarray | int) -> np.ndarray:
        """Draft tokens accepted when the first `width` nodes are verified: (n,) int64.

        anchors (n,); width (n,) or one for all. Exact because ranks grow along the realised path.
        """
        limit = np.broadcast_to(np.asarray(width), np.shape(anchors))
        return (self.hit_rank[anchors] <= limit[..., None]).sum(-1)

    def only(self, anchors: np.ndarray) -> OrderTable:
        """The rows of these anchors alone, numbered anew: of `traces.recordings.part.part_of`."""
        arrays = {name: getattr(self, name)[anchors] for name in ARRAYS}
        return replace(self, anchors=np.arange(len(anchors)), **arrays)

    def widths_allowed(self) -> tuple[int, ...] | None:
        """None if every width is; else the declared prefixes of a static order, beside its size."""
        return None if self.nested else self.spec.prefixes
