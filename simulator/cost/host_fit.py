"""Host terms from measured rounds: what is left when the device's share is taken out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from simulator.cost.host import HostOverhead

TERMS = (
    "round_s",
    "node_s",
    "tree_step_s",
    "plain_s",
    "request_s",
    "ordered_node_s",
    "plain_request_s",
    "fed_step_s",
    "catch_up_token_s",
)
# Finer parts of what tree steps pay. bubble_s is not among them: it cannot be told from tree_step_s
# in rounds, nor launch_s, which is no sum.
TREE_TERMS = ("tree_request_s", "kv_move_token_s")


def term_counts(
    *,
    drafted: np.ndarray,
    requests: np.ndarray,
    nodes: np.ndarray,
    ordered: np.ndarray,
    tree: np.ndarray,
    fed: np.ndarray,
    deferred: np.ndarray,
    finer: bool = False,
) -> dict[str, np.ndarray]:
    """How often each round pays each host term (`HostOverhead.seen_s`): name to (n,).

    Args:
        drafted: (n,) whether the round paid a draft.
        requests: (n,) requests in the round.
        nodes: (n,) draft nodes verified in all.
        ordered: (n,) draft nodes put in order in all.
        tree: (n,) whether it verifies trees.
        fed: (n,) whether a plain round's states were kept for a drafter.
        deferred: (n,) tokens the drafter had to catch up on.
        finer: whether `TREE_TERMS` are among them.
    """
    drafts = np.asarray(drafted, bool).astype(float)
    counts = {
        "round_s": drafts,
        "node_s": drafts * nodes,
        "tree_step_s": drafts * tree,
        "plain_s": 1 - drafts,
        "request_s": drafts * requests,
        "ordered_node_s": drafts * ordered,
        "plain_request_s": (1 - drafts) * requests,
        "fed_step_s": (1 - drafts) * fed,
        "catch_up_token_s": drafts * deferred,
        "tree_request_s": drafts * tree * requests,
        "kv_move_token_s": drafts * tree * nodes,
    }
    return {name: counts[name] for name in (TERMS + TREE_TERMS if finer else TERMS)}


def fit_host(
    round_s: np.ndarray,
    device_s: np.ndarray,
    terms: Mapping[str, np.ndarray],
    *,
    relative: bool = False,
) -> HostOverhead:
    """Least squares of ``round_s - device_s`` on the named terms, none negative.

    Exact: every subset of the terms is tried. Judge the result on rounds that are not among these.

    Args:
        round_s: (n,) measured seconds per round.
        device_s: (n,) seconds of drafting and verifying, from a profile.
        terms: names of `HostOverhead` terms, and (n,) how often each round pays the term.
        relative: make the error small relative to ``device_s``; else long rounds weigh most.

    Returns:
        The terms; those not named are 0, as is one whose best value would be negative.

    Raises:
        ValueError: a name that is no term, or a column of another length.
    """
    unknown = [name for name in terms if name not in (*TERMS, *TREE_TERMS)]
    if unknown:
        accepted = ", ".join((*TERMS, *TREE_TERMS))
        raise ValueError(f"host term {unknown[0]!r}; accepted: {accepted}")
    round_s = np.asarray(round_s, float)
    left_s, counts = round_s - np.asarray(device_s), np.column_stack([*terms.values()])
    if relative:
        # Not by the measured seconds: rounds that a stall made long would count for too little.
        weight = np.asarray(device_s, float)
        left_s, counts = left_s / weight, counts / weight[:, None]
    best = _least_squares(counts.astype(float), left_s)
    return HostOverhead(**dict(zip(terms, best.tolist(), strict=True)))


def _least_squares(counts: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Non-negative x (k,) of least |left - counts @ x|; counts (n, k), left (n,).

    The best x is the free fit of the terms it keeps, so one of the 2^k free fits is it.
    """
    width = counts.shape[1]
    best, least = np.zeros(width), float(left @ left)
    slack = 1e-12 * least  # equal up to rounding: the earlier subset
    for kept in product((False, True), repeat=width):
        if not any(kept):
            continue
        part, *_ = np.linalg.lstsq(counts[:, kept], left, rcond=None)
        error = float(np.sum((left - counts[:, kept] @ part) ** 2))
        if part.min() >= 0 and error < least - slack:
            best, least = np.zeros(width), error
            best[list(kept)] = part
    return best
