"""Validation of the tree encoding's structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from traces.checks import fail_where, most_mass, refuse_tokens
from traces.errors import InputError
from traces.schema import PADDING
from traces.tree import node_depths, path_nodes


def check_tree(meta: dict[str, Any], arrays: Mapping[str, np.ndarray], source: str) -> None:
    """Raise InputError at the first malformed tree; log-probabilities are finite and <= 0."""
    parent = arrays["tree_parent"]
    refuse_tokens(arrays["tree_token"], "tree_token", source, meta["vocab_size"])
    _check_parents(parent, source)
    _check_siblings(arrays, source)
    following = arrays["anchor_pos"].astype(np.int64)[:, None] + 1
    depths = _depths(arrays)
    depth = node_depths(parent)
    fail_where(
        depth >= depths,
        parent,
        "tree_parent",
        source,
        f"a parent above depth {depths} (D={depths})",
    )
    _check_path(arrays, arrays["tokens"][following + np.arange(depths)], source)


def _depths(arrays: Mapping[str, np.ndarray]) -> int:
    recorded = int(arrays["prompt_len"].sum()) + int(arrays["output_len"].sum())
    return (len(arrays["tokens"]) - recorded) // len(arrays["prompt_len"])


def _check_parents(parent: np.ndarray, source: str) -> None:
    """Parents come before children; unused slots only at the end of a row."""
    unused = parent == PADDING
    late = ~unused & (np.maximum.accumulate(unused, axis=1))
    fail_where(late, parent, "tree_parent", source, f"{PADDING}, as an unused slot comes before it")
    index = np.arange(parent.shape[1])
    bad = (parent < PADDING) | (parent >= index)
    fail_where(
        bad,
        parent,
        "tree_parent",
        source,
        lambda i: f"an earlier node, -1 (root) or {PADDING} (unused), below {i[1]}",
    )


def _check_siblings(arrays: Mapping[str, np.ndarray], source: str) -> None:
    """Siblings are distinct tokens in falling order of log-probability."""
    token, logq = arrays["tree_token"], arrays["tree_logq"]
    parent = arrays["tree_parent"].astype(np.int64)
    order = np.argsort(parent, axis=1, kind="stable")
    grouped = np.take_along_axis(parent, order, axis=1)
    siblings = (grouped[:, 1:] == grouped[:, :-1]) & (grouped[:, 1:] != PADDING)
    values = np.take_along_axis(logq, order, axis=1)
    rising = _scatter(siblings & (values[:, 1:] > values[:, :-1]), order)
    fail_where(rising, logq, "tree_logq", source, "at most that of the sibling before it")
    _check_sums(logq, parent, source)
    order = np.lexsort((token, parent), axis=1)
    grouped = np.take_along_axis(parent, order, axis=1)
    ids = np.take_along_axis(token, order, axis=1)
    same = (grouped[:, 1:] == grouped[:, :-1]) & (ids[:, 1:] == ids[:, :-1])
    twice = _scatter(same & (grouped[:, 1:] != PADDING), order)
    fail_where(twice, token, "tree_token", source, "a token no earlier sibling has")


def _check_sums(logq: np.ndarray, parent: np.ndarray, source: str) -> None:
    """Probabilities of the children of one node add up to at most 1."""
    rows, nodes = parent.shape
    start = np.arange(rows)[:, None] * (nodes + 1)  # groups of a row: the root's, each node's
    used = parent != PADDING
    group = start + np.where(used, parent, 0) + 1
    mass = np.where(used, np.exp(logq, dtype=np.float32), 0)
    total = np.bincount(group.ravel(), mass.ravel(), rows * (nodes + 1))
    most = most_mass(np.bincount(group.ravel(), used.ravel(), rows * (nodes + 1)))
    over = used & (total > most)[group]
    fail_where(
        over,
        logq,
        "tree_logq",
        source,
        lambda i: (
            f"siblings that add up to a probability of at most {most[group[i]]:.4g}, not "
            f"{total[group[i]]:.4g}"
        ),
    )


def _scatter(bad: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Flags of entries 1.. of the reordered rows, back in their own places."""
    flags = np.zeros(order.shape, dtype=bool)
    np.put_along_axis(flags, order[:, 1:], bad, axis=1)
    return flags


def _check_path(arrays: Mapping[str, np.ndarray], realised: np.ndarray, source: str) -> None:
    nodes = path_nodes(arrays["tree_token"], arrays["tree_parent"], realised)
    absent = nodes < 0
    if absent.any():
        anchor, depth = (int(i) for i in np.argwhere(absent)[0])
        raise InputError(
            f"{source}: array tree_token[{anchor}] lacks realised token {realised[anchor, depth]}"
            f" at depth index {depth}, expected the realised path among the nodes"
        )
