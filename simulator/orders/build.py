"""From a spec and draft scores to an OrderTable."""

from __future__ import annotations

import threading
from functools import cache

import numpy as np

from simulator.orders.families.base import Draws, OwnOrder
from simulator.orders.scores import NO_LOGITS, BlockScores, DraftHead, aligned
from simulator.orders.shape import child_places, resolve, static_shape
from simulator.orders.specs import Order, StaticOrder
from simulator.orders.table import OrderTable
from simulator.progress import Progress
from traces.common.errors import InputError
from traces.recordings.recording import Recording

NAMES = ("score", "size", "ties", "token", "hit_rank", "parent", "depth")  # kernel.Rows
KINDS = ("f8", "i4", "i4", "i4", "i2", "i2", "u1")


class BuildPlan:
    """An order's rule, a head's bias rows and work space, as numbers and addresses for `grow`.

    kind: kernel.Scores.kind. rule: the fields of kernel.Rule. Work space is kept from block to
    block, because fresh pages cost more: not to be shared between threads.
    """

    __slots__ = ("depths", "grow", "kept", "key", "layouts", "nodes", "numbers")

    def __init__(self, key: tuple, kind: int, rule: tuple, head, depths: int) -> None:
        from simulator.orders.kernels import best_first as kernel

        nodes, branch, cap, by_depth, calibrated, *reals, places = rule
        bias, vocab, banned = head.bias(), head.vocab_size, head.banned
        work = _work(kernel, vocab, depths, nodes, branch)
        self.kept = (*bias, banned, np.array(reals), np.ascontiguousarray(places), *work)
        numbers = [kind, nodes, branch, cap, depths, by_depth, calibrated]
        numbers += [vocab, head.w1.shape[1], len(bias[3]), len(banned), len(places)]
        assert len(numbers) == kernel.NUMBERS
        assert all(array.flags.c_contiguous for array in self.kept)  # `grow` sees addresses alone
        self.numbers = np.array([*numbers, *(x.ctypes.data for x in self.kept)], np.int64)
        self.key, self.nodes, self.depths, self.grow = key, nodes, depths, kernel.grow
        self.layouts: dict[int, tuple[np.dtype, np.ndarray]] = {}  # by number of anchors

    def layout(self, n: int) -> tuple[np.dtype, np.ndarray]:
        """The layout of kernel.Rows for n anchors, and the numbers of rows: (n,), read-only."""
        shapes = {"size": (n,), "ties": (n,), "hit_rank": (n, self.depths)}
        pairs = zip(NAMES, KINDS, strict=True)
        fields = [(name, kind, shapes.get(name, (n, self.nodes))) for name, kind in pairs]
        numbers = np.arange(n)
        numbers.setflags(write=False)
        return self.layouts.setdefault(n, (np.dtype(fields), numbers))


def _work(kernel, vocab: int, depths: int, nodes: int, branch: int) -> list[np.ndarray]:
    """The arrays of kernel.Block, kernel.Laws and kernel.Tree."""
    slots, wide, blocks = max(nodes, depths), kernel.padded(vocab), kernel.blocks(vocab)
    peaks = -(-blocks // (4 * kernel.LANES)) * 4
    block = ["f", (depths, wide), (depths,), (vocab,), (branch,), "i", (vocab + 1,)]
    laws = ["i", (slots, branch), "f", (slots, branch), "i", (slots,), "b", (slots,)]
    laws += ["f", (slots,), "i", (slots,), (slots,), "f", (slots,), (slots, blocks), (slots, peaks)]
    node = (nodes + 1,)
    tree = ["i", node, node, node, node, "f", node, node, "b", node, "i", node, "b", node]
    tree += ["f", (slots, branch), "i", (slots,), (depths,), "f", node, "i", node]
    kinds, kind, arrays = {"f": np.float64, "i": np.int64, "b": np.bool_}, None, []
    for item in block + laws + tree:
        if isinstance(item, str):
            kind = kinds[item]
        else:
            arrays.append(aligned(item, kind, 0))
    return arrays


CHUNK = 16  # anchors whose full-vocabulary logits are held at once; a multiple of the row tile
PLANS = 8  # kept per head
_LOCAL = threading.local()  # its `head` is what the kernel is given beside a pool
_UNKNOWN = np.zeros((0, 0), np.int64)  # realised tokens
_NO_POOL = (np.empty((0, 0, 0), np.int64), np.empty((0, 0, 0)))


def resolve_for(spec: Order, recording: Recording) -> Order:
    """`spec` with its defaults filled in for `recording`; InputError if it asks for too much."""
    if isinstance(spec, OwnOrder):
        return spec.resolved(recording)
    _, ranks, conditioned = _held(recording)
    return resolve(spec, recording.depths, ranks, conditioned, recording.source)


def build_order(spec: Order, recording: Recording) -> OrderTable:
    """The order at every anchor of `recording`. See `orders.order_table` for the cached one.

    Raises InputError when `spec` needs more ranks or depths than the recording holds.
    """
    resolved = resolve_for(spec, recording)
    if isinstance(resolved, OwnOrder):
        return _table(spec, resolved.columns(recording))
    head = DraftHead.of(recording) if recording.encoding == "hidden" else None
    step = CHUNK if head else 4096
    rows: dict[str, np.ndarray] = {}
    with Progress(recording.num_anchors, "orders of anchors") as progress:
        for first in range(0, max(recording.num_anchors, 1), step):
            anchors = np.arange(first, min(first + step, recording.num_anchors))
            block = _block(recording, anchors, head)
            part, _ = _run(resolved, block, recording.realised(anchors))
            rows = rows or _empty_rows(recording.num_anchors, part)
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
    rows, numbers = _run(spec, block, realised)
    return OrderTable.of_rows(spec, numbers, rows)


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


def _empty_rows(n: int, part: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays for n anchors of the kind of those in `part`."""
    return {name: np.empty((n, *part[name].shape[1:]), part[name].dtype) for name in NAMES}


def _table(spec: Order, rows: dict[str, np.ndarray]) -> OrderTable:
    for array in rows.values():
        array.setflags(False)  # by name it takes twice as long
    return OrderTable(spec, np.arange(len(rows["size"])), **rows)


@cache
def _kernel():
    from simulator.orders.kernels import best_first as kernel

    return kernel


def _run(
    spec: Order, block: BlockScores, realised: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of one block, read-only, as a record of `BuildPlan.layout`, and their numbers."""
    known = _UNKNOWN if realised is None else np.array(realised, dtype=np.int64, order="C")
    if block.pooled:
        logq = np.array(block.pool_logprob, dtype=np.float64, order="C")
        token = np.array(block.pool_token, dtype=np.int64, order="C")
        n, depths, ranks = logq.shape
        plan = _plan(_no_head(), spec, depths, ranks, _kernel().POOL)
        scores = (token, logq, *NO_LOGITS, np.zeros(n, np.int64))
    else:
        double, single = block.full_logits()
        n, depths = max(double.shape[:2], single.shape[:2])  # one of the two is empty
        plan = _plan(block.head, spec, depths, block.head.ranks)
        anchor_token = block.anchor_token
        if not (type(anchor_token) is np.ndarray and _is_plain(anchor_token)):
            anchor_token = np.array(anchor_token, dtype=np.int64)
        scores = (*_NO_POOL, double, single, anchor_token)
    layout, numbers = plan.layouts.get(n) or plan.layout(n)
    out = np.empty(layout.itemsize, np.uint8)
    if not plan.grow(plan.numbers, *scores, known, out):
        raise InputError("BlockScores pool_logprob: rises along a row, accepted: falling")
    out.setflags(False)  # by name it takes twice as long
    return np.ndarray((), layout, out), numbers


def _is_plain(anchor_token: np.ndarray) -> bool:
    """Whether numba takes it for what it has compiled for."""
    return anchor_token.dtype.char == "l" and anchor_token.flags.carray


def _no_head() -> DraftHead:
    """This thread's, as plans have work space."""
    if not hasattr(_LOCAL, "head"):
        _LOCAL.head = DraftHead(0)
    return _LOCAL.head


def _plan(
    head: DraftHead, spec: Order, depths: int, ranks: int, kind: int | None = None
) -> BuildPlan:
    """The head's plan for an order; most rounds ask for the one used last."""
    last = head.last_plan
    if last is not None:
        known_spec, known_depths, known_ranks = last.key
        if known_spec is spec and known_depths == depths and known_ranks == ranks:
            return last
    key = (spec, depths, ranks)
    if key not in head.plans:
        if len(head.plans) >= PLANS:
            head.plans.clear()
        resolved = resolve(spec, depths, ranks, head.conditioned, "the block")
        kind = _kind(resolved) if kind is None else kind
        head.plans[key] = BuildPlan(key, kind, _rule(resolved, depths), head, depths)
    head.last_plan = head.plans[key]
    return head.last_plan


def _kind(resolved: Order) -> int:
    """kernel.Scores.kind of logits; pools have a kind of their own."""
    kernel = _kernel()
    kinds = {"parent": kernel.PARENT, "marginal_biased": kernel.BIASED}
    return kinds.get(resolved.scores, kernel.MARGINAL)


def _rule(resolved: Order, depths: int) -> tuple:
    """The fields of kernel.Rule for a resolved spec."""
    if isinstance(resolved, StaticOrder):
        shape = static_shape(resolved, depths)
        places = child_places(shape)
        limits = (len(shape), places.shape[1], depths)
        return (*limits, True, False, 1.0, 0.0, -np.inf, places)
    by_depth, calibrated = resolved.ties == "depth", resolved.platt is not None
    a, b = resolved.platt or (1.0, 0.0)
    limits = (resolved.nodes, resolved.branch, resolved.depth_cap)
    floor = -np.inf if resolved.floor is None else resolved.floor
    return (*limits, by_depth, calibrated, a, b, floor, np.zeros((0, 0), np.int64))
