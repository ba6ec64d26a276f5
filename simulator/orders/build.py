"""From a spec and draft scores to an OrderTable."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import numpy as np

from simulator.orders.families.base import Columns, Draws, OwnOrder
from simulator.orders.scores import (
    NO_LOGITS,
    BlockScores,
    DraftHead,
    head_of,
    held,
    recorded_block,
)
from simulator.orders.shape import child_places, resolve, static_shape
from simulator.orders.specs import Order, StaticOrder
from simulator.orders.table import OrderTable
from simulator.progress import Progress
from traces.common.errors import InputError
from traces.recordings.recording import Recording

CHUNK = 16  # anchors whose full-vocabulary logits are held at once; a multiple of the row tile
PLANS = 8  # kept per head
_LOCAL = threading.local()  # its `head` is what the kernel is given beside a pool
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
    head = head_of(recording)
    step = CHUNK if head else 4096
    rows: Columns = {}
    with Progress(recording.num_anchors, "orders of anchors") as progress:
        for first in range(0, max(recording.num_anchors, 1), step):
            anchors = np.arange(first, min(first + step, recording.num_anchors))
            block = recorded_block(recording, anchors, head)
            part = _run(resolved, block, recording.realised(anchors))
            rows = rows or {
                name: np.empty((recording.num_anchors, *array.shape[1:]), array.dtype)
                for name, array in part.items()
            }
            for name, array in rows.items():
                array[first : first + len(anchors)] = part[name]
            progress.update(first + len(anchors))
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
        head, scores = _no_head(), (token, logq, *NO_LOGITS, np.zeros(n, np.int64))
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


def _no_head() -> DraftHead:
    """This thread's, as heads have work space."""
    if not hasattr(_LOCAL, "head"):
        _LOCAL.head = DraftHead(0)
    return _LOCAL.head


def _plan(head: DraftHead, spec: Order, depths: int, ranks: int, pooled: bool) -> tuple[Any, Any]:
    """(kernel.Rule, kernel.WorkSpace) of an order, kept from block to block."""
    key = (spec, depths, ranks)
    if key not in head.work:
        if len(head.work) >= PLANS:
            head.work.clear()
        resolved = resolve(spec, depths, ranks, head.conditioned, "the block")
        rule = _rule(resolved, depths, pooled)
        size = (head.vocab_size, depths, rule.nodes, rule.branch)
        head.work[key] = rule, _kernel().work_space(*size)
    return head.work[key]


def _rule(resolved: Order, depths: int, pooled: bool) -> Any:
    """kernel.Rule of a resolved spec."""
    kernel = _kernel()
    kinds = {"parent": kernel.PARENT, "marginal_biased": kernel.BIASED}
    kind = kernel.POOL if pooled else kinds.get(resolved.scores, kernel.MARGINAL)
    if isinstance(resolved, StaticOrder):
        shape = static_shape(resolved, depths)
        places = child_places(shape)
        limits = (kind, len(shape), places.shape[1], depths)
        return kernel.Rule(*limits, True, False, 1.0, 0.0, -np.inf, places)
    a, b = resolved.platt or (1.0, 0.0)
    return kernel.Rule(
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
