"""Which of its parent's children each realised token is."""

from __future__ import annotations

import numpy as np

from simulator.orders.block import DraftHead
from simulator.orders.blockwise import CHUNK, limited_scores
from simulator.orders.build import _block, _held
from traces.recording import Recording


def realised_ranks(
    recording: Recording, anchors: np.ndarray, branch: int, scores: str = "auto"
) -> np.ndarray:
    """0-based rank of every realised token below its true parent: (n, D), `branch` if not there.

    scores as in BestFirstOrder. A recorded pool with fewer ranks than `branch` ends the search.
    """
    from simulator.orders.children import Children

    _, ranks, conditioned = _held(recording)
    kind, kept = limited_scores(scores, conditioned), min(branch, ranks)
    head = DraftHead.of(recording) if recording.encoding == "hidden" else None
    parts = [np.zeros((0, recording.depths), np.int64)]
    for first in range(0, len(anchors), CHUNK):
        some = anchors[first : first + CHUNK]
        children, rows = Children(_block(recording, some, head), kind, kept), np.arange(len(some))
        realised = recording.realised(some)
        parents = np.column_stack([recording.anchor_tokens(some), realised[:, :-1]])
        found = np.full(realised.shape, branch)
        for depth in range(recording.depths):
            token, _ = children.of(depth, rows, parents[:, depth])
            match = token == realised[:, depth, None]
            found[:, depth] = np.where(match.any(axis=1), match.argmax(axis=1), branch)
        parts.append(found)
    return np.concatenate(parts)
