"""How far the realised path stays inside the candidates that an order may choose from."""

from __future__ import annotations

import numpy as np

from simulator.orders.table import ABSENT, OrderTable
from traces.recording import Recording

_CHUNK = 512  # anchors whose full-vocabulary logits are held at once
_NEAR = 1e-6  # logits: a token this close to the last candidate counts as one


def table_prefix(table: OrderTable, anchors: np.ndarray) -> np.ndarray:
    """Depths of the realised path that are nodes of the order: (n,).

    The pool is the order's own nodes; for sampled orders those that were drawn.
    """
    return (table.hit_rank[anchors] != ABSENT).sum(axis=1)


def pool_prefix(recording: Recording, anchors: np.ndarray, branch: int) -> np.ndarray:
    """Depths of the realised path of which each token is among its parent's `branch` best: (n,).

    No order of that branch or less, calibrated or not, whatever its number of nodes, accepts more.
    With a Markov head there are three kinds of scores (the true parent's, none, and the greedy
    chain's, see `BestFirstOrder`): the longest prefix of the three counts.
    """
    realised = recording.realised(anchors)  # (n, D)
    if recording.encoding == "pool":
        pool = recording["pool_token"][anchors, :, :branch]  # (n, D, branch)
        inside = (pool == realised[..., None]).any(axis=-1)
        return np.cumprod(inside, axis=1).sum(axis=1)
    chunks = range(0, len(anchors), _CHUNK)
    parts = [_hidden_prefix(recording, anchors[i : i + _CHUNK], branch) for i in chunks]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _hidden_prefix(recording: Recording, anchors: np.ndarray, branch: int) -> np.ndarray:
    head = recording["head"].astype(np.float64)
    bias, realised = _bias(recording), recording.realised(anchors)
    parent = greedy = recording.anchor_tokens(anchors)
    inside = np.ones((len(anchors), 3 if bias else 1), bool)  # by kind of scores
    length = np.zeros(len(anchors), np.int64)
    for depth in range(recording.depths):
        live = np.flatnonzero(inside.any(axis=1))
        plain = recording["hidden"][anchors[live], depth].astype(np.float64) @ head.T  # (live, V)
        plain[:, recording.banned_tokens] = -np.inf
        token = realised[live, depth]
        kinds = [plain]
        if bias:
            kinds += [plain + bias(parent[live]), plain + bias(greedy[live])]
            greedy = greedy.copy()
            greedy[live] = kinds[2].argmax(axis=1)
        inside[live] &= np.stack([_among(one, token, branch) for one in kinds], axis=1)
        length += inside.any(axis=1)
        parent = realised[:, depth]
    return length


def _bias(recording: Recording):
    """Logits added for (n,) parent tokens: a function to (n, V), or None without a Markov head."""
    if "markov_w1" not in recording:
        return None
    w1, w2 = recording["markov_w1"].astype(np.float64), recording["markov_w2"].astype(np.float64)
    return lambda parents: w1[parents] @ w2.T


def _among(logits: np.ndarray, token: np.ndarray, branch: int) -> np.ndarray:
    """Whether fewer than `branch` tokens are clearly better than `token`: (n,) bool."""
    own = np.take_along_axis(logits, token[:, None].astype(np.int64), axis=1)
    return (logits > own + _NEAR).sum(axis=1) < branch
