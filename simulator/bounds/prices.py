"""Seconds of a lone request's rounds, by context and width: the server's own price."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.cost import StepCost


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices at n anchors; anchors of equal context and order size share a row."""

    row: np.ndarray  # (n,) row of round_s
    plain_s: np.ndarray  # (n,) a plain decoding step
    round_s: np.ndarray  # (R, W + 1) a round that verifies w nodes


def lone_prices(
    cost: StepCost,
    context: np.ndarray,
    widest: int,
    *,
    tree: bool,
    ordered: np.ndarray | None = None,
) -> Prices:
    """What `StepCost.step` charges one request.

    Args:
        context: (n,) KV tokens before each anchor. widest: W.
        tree: whether rounds with nodes pay the host's tree term.
        ordered: (n,) nodes the host orders per round; None: as many as are verified.
    """
    ordered = np.full(len(context), -1) if ordered is None else ordered
    kinds, row = np.unique(np.stack([context, ordered], axis=1), axis=0, return_inverse=True)
    one = np.ones(1, np.int64)
    plain = [
        cost.step(one, one * kv, drafted=False, tree=False).total_s for kv in kinds[:, 0].tolist()
    ]
    rounds = [_rounds(cost, kv, widest, tree, many) for kv, many in kinds.tolist()]
    row = row.reshape(-1)
    return Prices(row, np.array(plain)[row], np.array(rounds))


def _rounds(cost: StepCost, context: int, widest: int, tree: bool, ordered: int) -> np.ndarray:
    """(W + 1,) seconds of a drafted round with 0..W nodes."""
    device_s = cost.verify_curve_s(1, np.arange(1, widest + 2), context) + cost.draft_s(1, context)
    host_s = [
        cost.host.seen_s(
            width,
            seconds,
            requests=1,
            drafted=True,
            tree=tree and width > 0,
            ordered=width if ordered < 0 else ordered,
        )
        for width, seconds in enumerate(device_s.tolist())
    ]
    return device_s + host_s
