"""The tree encoding: candidate trees of semi-autoregressive drafters of large models.

A row holds up to M nodes (token, parent, conditional log-probability); parents come before
children, siblings in rank order, and the realised path is always among the nodes. Unused slots
at the end of a row have parent PADDING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traces.recordings.schema import PADDING, ROOT

if TYPE_CHECKING:
    from traces.recordings.recording import Recording


def node_depths(parent: np.ndarray) -> np.ndarray:
    """0-based depth of every node, -1 in unused slots: int16 [n, M] of `tree_parent` [n, M].

    Parents must come before their children.
    """
    depth = np.full(parent.shape, -1, dtype=np.int16)
    rows = np.arange(len(parent))
    for m in range(parent.shape[1]):
        above = depth[rows, np.maximum(parent[:, m], 0)]
        depth[:, m] = np.where(parent[:, m] == ROOT, 0, above + 1)
        depth[parent[:, m] == PADDING, m] = -1
    return depth


def path_nodes(token: np.ndarray, parent: np.ndarray, realised: np.ndarray) -> np.ndarray:
    """Node index of each realised token, -1 from the first absent one on: int64 [n, D].

    `token`, `parent` [n, M]; `realised` [n, D].
    """
    nodes = np.full(realised.shape, -1, dtype=np.int64)
    above = np.full(len(token), ROOT, dtype=np.int64)
    for depth in range(realised.shape[1]):
        match = (parent == above[:, None]) & (token == realised[:, depth, None])  # (n, M)
        found = match.any(axis=1)
        nodes[:, depth] = np.where(found, match.argmax(axis=1), -1)
        above = np.where(found, nodes[:, depth], PADDING - 1)  # matches no parent: path is lost
    return nodes


def conditional(
    recording: Recording, anchor: int, depth: int, parents: np.ndarray, top: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Recorded children under each parent token, padded with (-1, -inf): both [n, K'].

    A Markov head conditions on the parent's token and depth alone, so children of all nodes
    with that token at that depth are one law; at depth 0 the anchor is the only parent.
    """
    parent = recording["tree_parent"][anchor]
    token = recording["tree_token"][anchor].astype(np.int64)
    logq = recording["tree_logq"][anchor].astype(np.float64)
    at_depth = node_depths(parent[None])[0] == depth
    rows = []
    for parent_token in parents:
        chosen = at_depth if depth == 0 else at_depth & (token[parent] == parent_token)
        children, first = np.unique(token[chosen], return_index=True)
        order = np.argsort(-logq[chosen][first], kind="stable")[:top]
        rows.append((children[order], logq[chosen][first][order]))
    width = max((len(children) for children, _ in rows), default=0)
    tokens = np.full((len(rows), width), -1, dtype=np.int64)
    values = np.full((len(rows), width), -np.inf)
    for i, (children, child_logq) in enumerate(rows):
        tokens[i, : len(children)] = children
        values[i, : len(children)] = child_logq
    return tokens, values


def path_logq(recording: Recording, anchors: np.ndarray) -> np.ndarray:
    """Conditional log-probability of every realised token: float64 [n, D]."""
    token, parent = recording["tree_token"][anchors], recording["tree_parent"][anchors]
    nodes = path_nodes(token, parent, recording.realised(anchors))
    return np.take_along_axis(recording["tree_logq"][anchors], nodes, axis=1).astype(np.float64)
