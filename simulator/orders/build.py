"""From a spec and draft scores to an OrderTable."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from simulator.orders.block import NO_LOGITS, BlockScores, DraftHead
from simulator.orders.shape import child_places, resolve, static_shape
from simulator.orders.specs import Order, StaticOrder
from simulator.orders.table import OrderTable
from simulator.progress import Progress
from traces.errors import InputError
from traces.recording import Recording

CHUNK = 16  # anchors whose full-vocabulary logits are held at once; a multiple of the row tile
_NO_HEAD = DraftHead(0)  # what the kernel is given beside a pool
_UNKNOWN = np.zeros((0, 0), np.int64)  # realised tokens
_NO_WORK = (np.empty((0, 0)),) * 2
_NO_POOL = (np.empty((0, 0, 0), np.int64), np.empty((0, 0, 0)))


def resolve_for(spec: Order, recording: Recording) -> Order:
    """`spec` with its defaults filled in for `recording`; InputError if it asks for too much."""
    _, ranks, conditioned = _held(recording)
    return resolve(spec, recording.depths, ranks, conditioned, recording.source)


def build_order(spec: Order, recording: Recording) -> OrderTable:
    """The order at every anchor of `recording`. See `orders.order_table` for the cached one.

    Raises InputError when `spec` needs more ranks or depths than the recording holds.
    """
    resolved = resolve_for(spec, recording)
    rule = _rule(resolved, recording.depths)
    rows = _empty_rows(recording.num_anchors, recording.depths, rule.nodes)
    head = DraftHead.of(recording) if recording.encoding == "hidden" else None
    step = CHUNK if head else 4096
    with Progress(recording.num_anchors, "orders of anchors") as progress:
        for first in range(0, recording.num_anchors, step):
            anchors = np.arange(first, min(first + step, recording.num_anchors))
            part = {name: array[anchors[0] : anchors[-1] + 1] for name, array in rows.items()}
            block = _block(recording, anchors, head)
            _run(resolved.scores, rule, block, part, recording.realised(anchors))
            progress.update(first + len(anchors))
    return _table(spec, rows)


def build_block(spec: Order, block: BlockScores, realised: np.ndarray | None = None) -> OrderTable:
    """The order of n live blocks, by the same code; rows are the blocks.

    realised (n, D): the target's tokens, if known; otherwise every hit_rank is ABSENT.
    """
    n, depths, ranks = block.shape
    resolved, rule = _live_rule(spec, depths, ranks, block.conditioned)
    rows = _empty_rows(n, depths, rule.nodes)
    _run(resolved.scores, rule, block, rows, realised)
    return _table(spec, rows)


@lru_cache(maxsize=64)
def _live_rule(spec: Order, depths: int, ranks: int, conditioned: bool):
    resolved = resolve(spec, depths, ranks, conditioned, "the block")
    return resolved, _rule(resolved, depths)


def _held(recording: Recording) -> tuple[int, int, bool]:
    """(depths, ranks per node, whether scores depend on the parent) of a recording."""
    if recording.encoding == "pool":
        return recording.depths, recording["pool_logprob"].shape[2], False
    if recording.encoding == "hidden":
        ranks = recording.vocab_size - len(np.unique(recording.banned_tokens))
        return recording.depths, ranks, "markov_w1" in recording
    raise InputError(
        f"{recording.source}: encoding {recording.encoding!r}, orders accept pool and hidden"
    )


def _block(recording: Recording, anchors: np.ndarray, head: DraftHead | None) -> BlockScores:
    if head is None:
        return BlockScores(recording["pool_token"][anchors], recording["pool_logprob"][anchors])
    hidden = recording["hidden"][anchors]
    return BlockScores(hidden=hidden, head=head, anchor_token=recording.anchor_tokens(anchors))


def _empty_rows(n: int, depths: int, nodes: int) -> dict[str, np.ndarray]:
    """Arrays for the kernel to fill, padding included."""
    return {
        "score": np.empty((n, nodes)),
        "depth": np.empty((n, nodes), np.uint8),
        "parent": np.empty((n, nodes), np.int16),
        "token": np.empty((n, nodes), np.int32),
        "size": np.empty(n, np.int32),
        "hit_rank": np.empty((n, depths), np.int16),
        "ties": np.empty(n, np.int32),
    }


def _table(spec: Order, rows: dict[str, np.ndarray]) -> OrderTable:
    for array in rows.values():
        array.setflags(write=False)
    return OrderTable(spec, _row_numbers(len(rows["size"])), **rows)


@lru_cache(maxsize=64)
def _row_numbers(n: int) -> np.ndarray:
    numbers = np.arange(n)
    numbers.setflags(write=False)
    return numbers


def _run(kind: str, rule, block: BlockScores, rows: dict, realised: np.ndarray | None) -> None:
    """Fill `rows` for one block, with scores of that kind."""
    from simulator.orders import kernel  # numba: only when a table is to be built

    known = _UNKNOWN if realised is None else np.array(realised, dtype=np.int64)
    scores = _scores(kernel, kind, rule, block)
    if not kernel.grow(scores, rule, kernel.Rows(**rows, realised=known)):
        raise InputError("BlockScores pool_logprob: rises along a row, accepted: falling")


def _rule(resolved: Order, depths: int):
    """kernel.Rule of a resolved spec."""
    from simulator.orders import kernel

    if isinstance(resolved, StaticOrder):
        shape = static_shape(resolved, depths)
        places = child_places(shape)
        return kernel.Rule(len(shape), places.shape[1], depths, True, False, 1.0, 0.0, places)
    by_depth, calibrated = resolved.ties == "depth", resolved.platt is not None
    a, b = resolved.platt or (1.0, 0.0)
    limits = (resolved.nodes, resolved.branch, resolved.depth_cap)
    return kernel.Rule(*limits, by_depth, calibrated, a, b, np.zeros((0, 0), np.int64))


def _scores(kernel, kind: str, rule, block: BlockScores):
    """kernel.Scores of the block: its pool, or its logits and how children depend on the parent."""
    n, depths, _ = block.shape
    if block.pooled:
        token = np.array(block.pool_token, dtype=np.int64, order="C")
        logq = np.array(block.pool_logprob, dtype=np.float64, order="C")
        tail = (*_NO_WORK, _NO_HEAD.banned, _NO_HEAD.bias(), np.zeros(n, np.int64))
        return kernel.Scores(kernel.POOL, token, logq, *NO_LOGITS, *tail)
    kinds = {"parent": kernel.PARENT, "marginal_biased": kernel.BIASED}
    work = block.head.workspaces(depths, max(rule.nodes, depths))
    anchor_token = np.array(block.anchor_token, dtype=np.int64)
    tail = (*work, block.head.banned, block.head.bias(), anchor_token)
    return kernel.Scores(kinds.get(kind, kernel.MARGINAL), *_NO_POOL, *block.full_logits(), *tail)
