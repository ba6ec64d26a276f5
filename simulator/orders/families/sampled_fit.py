"""What the estimates of sampled drafts are fitted on, and what a pool leaves out of them."""

from __future__ import annotations

import numpy as np

from simulator.orders.table import OrderTable
from traces.common.errors import InputError
from traces.recordings.recording import Recording

ROWS = 1024  # full-vocabulary laws held at once


def sampled_edges(
    recording: Recording, table: OrderTable, anchors: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(q, label, depth) of every admitted child of the anchor or of an accepted node: (edges,).

    q is the drafter's probability of the drawn token at temperature 1, label whether the child was
    accepted, depth 1-based. Fit a Platt map on them (`calibration.fit_platt`), one for each
    temperature: whether a sampled child is accepted is another event than equality with the text.
    """
    anchors = np.asarray(anchors)
    hit = table.hit_rank[anchors].astype(np.int64)  # (n, D)
    slot = np.arange(table.max_nodes)
    exists = slot < table.size[anchors, None]
    parent, token = table.parent[anchors].astype(np.int64), table.token[anchors]
    parts = []
    for depth in range(recording.depths):
        above = hit[:, depth - 1, None] - 1 if depth else np.full((len(anchors), 1), -1)
        under = exists & (parent == above) & (table.depth[anchors] == depth + 1)
        row, node = np.nonzero(under)
        q = _path_q(recording, anchors, depth, row, token[row, node].astype(np.int64))
        parts.append((q, node == hit[row, depth] - 1, np.full(len(row), depth + 1)))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _path_q(recording, anchors, depth: int, row: np.ndarray, token: np.ndarray) -> np.ndarray:
    """Probability of tokens under the realised parents of anchors[row], row ascending."""
    if recording.encoding == "pool":
        match = recording["pool_token"][anchors[row], depth] == token[:, None]
        logq = recording["pool_logprob"][anchors[row], depth].astype(np.float64)
        return np.exp(np.where(match, logq, -np.inf).max(axis=1))
    if depth:
        parents = recording.realised(anchors)[:, depth - 1]
    else:
        parents = recording.anchor_tokens(anchors)
    q = np.empty(len(row))
    for first in range(0, len(anchors), ROWS):
        cut = slice(*np.searchsorted(row, [first, first + ROWS]))
        some = slice(first, first + ROWS)
        law = recording.conditional_logp(anchors[some], depth, parents[some])
        q[cut] = np.exp(law[row[cut] - first, token[cut]])
    return q


def sampled_error_bound(recording: Recording, anchors: np.ndarray) -> np.ndarray:
    """How far drafts from a pool may differ from those of the whole law: (n,) in [0, 1].

    Replay is exact for the drafts that are made, from the K pool tokens. Where the drafter would
    sample its whole vocabulary, a slot's token comes from another law, in total variation by the
    tail that the pool leaves out, so the chance that a first child is accepted differs by no more.
    (Pools hold the law at temperature 1; the drafts of colder ones leave out less.) The largest
    over an anchor's depths; 0 where the recording holds the whole law.
    """
    anchors = np.asarray(anchors)
    if recording.encoding == "hidden":
        return np.zeros(len(anchors))
    if recording.encoding != "pool":
        raise InputError(f"{recording.source}: encoding {recording.encoding}, accepted: pool")
    held = np.exp(recording["pool_logprob"][anchors].astype(np.float64)).sum(axis=-1)  # (n, D)
    return np.clip(1.0 - held, 0.0, 1.0).max(axis=1)
