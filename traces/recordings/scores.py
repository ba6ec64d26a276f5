"""Draft and target laws behind the one reader interface, by encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traces.common.errors import InputError
from traces.recordings import tree

if TYPE_CHECKING:
    from traces.recordings.recording import Recording

_BLOCK_ROWS = 2048  # rows of full-vocabulary logits held at once


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-softmax over the last axis, in the dtype of `logits`; -inf stays -inf."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def rank_tokens(logq: np.ndarray, top: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Tokens by falling `logq` [n, V], ties by smaller id: (tokens, logq), each [n, top or V]."""
    vocab = logq.shape[1]
    keep = vocab if top is None else min(top, vocab)
    if keep == vocab:
        order = np.argsort(-logq, axis=1, kind="stable")
    else:
        order = np.empty((len(logq), keep), dtype=np.int64)
        for row, best in zip(logq, order, strict=True):
            threshold = np.partition(row, vocab - keep)[vocab - keep]
            tied = np.flatnonzero(row >= threshold)  # ascending ids: a stable sort breaks ties
            best[:] = tied[np.argsort(-row[tied], kind="stable")][:keep]
    return order, np.take_along_axis(logq, order, axis=1)


def _float64(recording: Recording, name: str) -> np.ndarray:
    return recording.memo(f"float64 {name}", lambda: recording[name].astype(np.float64))


def _banned(recording: Recording, logits: np.ndarray) -> np.ndarray:
    logits[..., recording.banned_tokens] = -np.inf
    return logits


def hidden_logp(
    recording: Recording, anchors: np.ndarray, depth: int, parents: np.ndarray
) -> np.ndarray:
    """softmax(head @ hidden[a, depth] + markov_w2 @ markov_w1[u]) in float64: log, [n, V]."""
    if recording.encoding != "hidden":
        raise InputError(
            f"{recording.source}: encoding {recording.encoding} holds no full-vocabulary draft law,"
            " encoding hidden does"
        )
    state = recording["hidden"][anchors, depth].astype(np.float64)  # (n, d)
    logits = state @ _float64(recording, "head").T
    if "markov_w1" in recording:
        w1, w2 = _float64(recording, "markov_w1"), _float64(recording, "markov_w2")
        logits = logits + w1[parents] @ w2.T
    return log_softmax(_banned(recording, logits))


def _hidden_conditional(recording, anchor, depth, parents, top):
    anchors = np.full(len(parents), anchor)
    return rank_tokens(hidden_logp(recording, anchors, depth, parents), top)


def _hidden_path(recording: Recording, anchors: np.ndarray) -> np.ndarray:
    realised = recording.realised(anchors)
    parents = np.column_stack([recording.anchor_tokens(anchors), realised[:, :-1]])
    logq = np.empty(realised.shape)
    for first in range(0, len(anchors), _BLOCK_ROWS):
        rows = slice(first, first + _BLOCK_ROWS)
        for depth in range(recording.depths):
            law = hidden_logp(recording, anchors[rows], depth, parents[rows, depth])
            logq[rows, depth] = law[np.arange(len(law)), realised[rows, depth]]
    return logq


def _pool_conditional(recording, anchor, depth, parents, top):
    """The pool row as recorded, whatever the parent.

    Entries made equal by float16 keep the recorder's order, which had more digits.
    """
    logq = recording["pool_logprob"][anchor, depth, :top].astype(np.float64)
    tokens = recording["pool_token"][anchor, depth, :top].astype(np.int64)
    shape = (len(parents), len(tokens))
    return np.broadcast_to(tokens, shape), np.broadcast_to(logq, shape)


def _pool_path(recording: Recording, anchors: np.ndarray) -> np.ndarray:
    return recording["path_logq"][anchors].astype(np.float64)


def target_logp(recording: Recording, row: np.ndarray) -> np.ndarray:
    """log softmax(target_head @ target_hidden[row] / temperature) in float64: [..., V]."""
    if recording.temperature <= 0:
        raise InputError(f"{recording.source}: temperature 0 records no target law, needs > 0")
    head = "head" if recording.meta["shared_head"] else "target_head"
    state = recording["target_hidden"][row].astype(np.float64)
    logits = state @ _float64(recording, head).T / recording.temperature
    return log_softmax(_banned(recording, logits))


CONDITIONAL = {
    "pool": _pool_conditional,
    "hidden": _hidden_conditional,
    "tree": tree.conditional,
}
PATH_LOGQ = {"pool": _pool_path, "hidden": _hidden_path, "tree": tree.path_logq}
