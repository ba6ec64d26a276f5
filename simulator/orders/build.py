"""From a spec and draft scores to an OrderTable."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from simulator.orders.scores import (
    NO_LOGITS,
    BlockScores,
    DraftHead,
    gathered,
    held,
    no_head,
)
from simulator.orders.specs import (
    Columns,
    Draws,
    Order,
    OwnOrder,
    StaticOrder,
    resolve,
    static_shape,
)
from simulator.orders.table import OrderTable
from traces.common.errors import InputError
from traces.recordings.recording import Recording

CHUNK = 16  # anchors whose full-vocabulary logits are held at once; a multiple of the row tile
PLANS = 8  # kept per head
_UNKNOWN = np.zeros((0, 0), np.int64)  # realised tokens
_NO_POOL = (np.empty((0, 0, 0), np.int64), np.empty((0, 0, 0)))


def resolve_for(spec: Order, recording: Recording) -> Order:
    """`spec` with its defaults filled in for `recording`; InputError if it asks for too much."""
    if isinstance(spec, OwnOrder):
        return spec.resolved(recording)
    return resolve(spec, *held(recording), recording.source)


def build_order(spec: Order, recording: Recording) -> OrderTable:
    """The order at every anchor of `recording`. See `orders.order_table` for the cached one.

    Raises InputError when `spec` needs more ranks or depths than the recording holds.
    """
    resolved = resolve_for(spec, recording)
    if isinstance(resolved, OwnOrder):
        return _table(spec, resolved.columns(recording))
    step = CHUNK if recording.encoding == "hidden" else 4096
    rows = gathered(
        recording, step, lambda some, block: _run(resolved, block, recording.realised(some))
    )
    return _table(spec, rows)


def build_block(
    spec: Order,
    block: BlockScores,
    realised: np.ndarray | None = None,
    draws: Draws | None = None,
) -> OrderTable:
    """The order of n live blocks, by the same code; rows are the blocks.

    realised (n, D): the target's tokens, if known; otherwise every hit_rank is ABSENT.
    draws: where the drafts of sampled orders come from.
    """
    if isinstance(spec, OwnOrder):
        return _table(spec, spec.block_columns(block, realised, draws))
    return _table(spec, _run(spec, block, realised))


def _table(spec: Order, rows: Columns) -> OrderTable:
    return OrderTable(spec, np.arange(len(rows["size"])), **rows)


@cache
def _kernel():
    from simulator.orders.kernels import best_first as kernel

    return kernel


def _run(spec: Order, block: BlockScores, realised: np.ndarray | None) -> Columns:
    """The rows of one block, an array of their own each."""
    kernel = _kernel()
    known = _UNKNOWN if realised is None else np.array(realised, dtype=np.int64, order="C")
    n, depths, ranks = block.shape
    if block.pooled:
        logq = np.array(block.pool_logprob, dtype=np.float64, order="C")
        token = np.array(block.pool_token, dtype=np.int64, order="C")
        head, scores = no_head(), (token, logq, *NO_LOGITS, np.zeros(n, np.int64))
    else:
        head, anchor_token = block.head, np.array(block.anchor_token, dtype=np.int64)
        scores = (*_NO_POOL, *block.full_logits(), anchor_token)
    rule, work = _plan(head, spec, depths, ranks, block.pooled)
    rows = {
        "score": np.empty((n, rule.nodes)),
        "depth": np.empty((n, rule.nodes), np.uint8),
        "parent": np.empty((n, rule.nodes), np.int16),
        "token": np.empty((n, rule.nodes), np.int32),
        "size": np.empty(n, np.int32),
        "hit_rank": np.empty((n, depths), np.int16),
        "ties": np.empty(n, np.int32),
    }
    if not kernel.grow(*scores, *head.kept(), *rule, *work, *rows.values(), known):
        raise InputError("BlockScores pool_logprob: rises along a row, accepted: falling")
    return rows


def _plan(head: DraftHead, spec: Order, depths: int, ranks: int, pooled: bool) -> tuple[Any, Any]:
    """(kernel.Rule, kernel.WorkSpace) of an order, kept from block to block."""
    key = (spec, depths, ranks)
    if key in head.work:
        return head.work[key]
    if len(head.work) >= PLANS:
        head.work.clear()
    kernel = _kernel()
    resolved = resolve(spec, depths, ranks, head.conditioned, "the block")
    kinds = {"parent": kernel.PARENT, "marginal_biased": kernel.BIASED}
    kind = kernel.POOL if pooled else kinds.get(resolved.scores, kernel.MARGINAL)
    if isinstance(resolved, StaticOrder):
        shape = static_shape(resolved, depths)
        places = np.full((len(shape) + 1, shape[:, 1].max() + 1), -1)  # see kernel.Rule
        places[shape[:, 0] + 1, shape[:, 1]] = np.arange(len(shape))
        limits = (kind, len(shape), places.shape[1], depths)
        rule = kernel.Rule(*limits, True, False, 1.0, 0.0, -np.inf, places)
    else:
        a, b = resolved.platt or (1.0, 0.0)
        rule = kernel.Rule(
            kind=kind,
            nodes=resolved.nodes,
            branch=resolved.branch,
            depth_cap=resolved.depth_cap,
            ties_by_depth=resolved.ties == "depth",
            calibrated=resolved.platt is not None,
            a=a,
            b=b,
            floor=-np.inf if resolved.floor is None else resolved.floor,
            shape=np.zeros((0, 0), np.int64),
        )
    head.work[key] = rule, kernel.work_space(head.vocab_size, depths, rule.nodes, rule.branch)
    return head.work[key]
