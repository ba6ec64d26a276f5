"""Draft scores to build orders from: live blocks, and the head that conditions them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.orders.specs import Columns
from simulator.progress import Progress
from traces.common.errors import InputError
from traces.recordings.recording import Recording

if TYPE_CHECKING:
    from simulator.orders.kernels.best_first import Head

NO_LOGITS = (np.empty((0, 0, 0)), np.empty((0, 0, 0), np.float32))  # (n, D, V) of either type
ROW_BYTES = 192e6  # memory for bias rows and their exponentials; 2,048 tokens need 67 MB
_LOCAL = threading.local()  # its `head` is that of `no_head`

Q_MAX = 1 - 1e-9  # TreeSpark's clamp
Q_MIN = 1e-300


def logit(q: np.ndarray) -> np.ndarray:
    """log(q / (1 - q)) in float64, q clamped into (0, 1 - 1e-9]."""
    q = np.clip(np.asarray(q, dtype=np.float64), Q_MIN, Q_MAX)
    return np.log(q) - np.log1p(-q)


class DraftHead:
    """The parts of a drafter that are the same in every block, in float64.

    head (V, d): output head, needed for hidden states only. markov_w1, markov_w2 (V, r): bias
    logits W2 W1[parent]. banned: tokens never drafted. Keeps bias rows and work space between
    blocks: not to be shared between threads. confidence: weights of the confidence head (d,) and
    (r,) and its bias, if there is one.
    """

    def __init__(
        self, vocab_size, head=None, markov_w1=None, markov_w2=None, banned=(), confidence=None
    ) -> None:
        if (markov_w1 is None) != (markov_w2 is None):
            raise InputError("DraftHead: markov_w1 and markov_w2 must be given together")
        self.vocab_size = int(vocab_size)
        self.conditioned = markov_w1 is not None
        self.banned = np.unique(np.asarray(banned, dtype=np.int64))
        self.head = None if head is None else np.asarray(head, dtype=np.float64)
        self.w1 = self._factor("markov_w1", markov_w1)
        self.w2 = np.ascontiguousarray(self._factor("markov_w2", markov_w2).T)
        self.confidence = None  # (weights of a state (d,), a parent token's part (V,), bias)
        if confidence is not None:
            state, parent, bias = (np.asarray(part, dtype=np.float64) for part in confidence)
            self.confidence = state, self.w1 @ parent.reshape(-1), float(bias.reshape(()))
        self.ranks = self.vocab_size - len(self.banned)  # known per depth
        self.arrays: Head | None = None  # see `kept`
        self.work: dict[Any, Any] = {}  # work space and what goes with it, see `build`

    def __getstate__(self) -> dict:
        """A copy gets bias rows and work space of its own."""
        return {**self.__dict__, "arrays": None, "work": {}}

    def _factor(self, name: str, factor) -> np.ndarray:
        if factor is None:
            return np.zeros((self.vocab_size, 0))
        factor = np.array(factor, dtype=np.float64, order="C")
        if factor.ndim != 2 or len(factor) != self.vocab_size:
            raise InputError(
                f"DraftHead {name}: shape {factor.shape}, accepted: ({self.vocab_size}, rank)"
            )
        return factor

    @classmethod
    def of(cls, recording: Recording) -> DraftHead:
        """The head of a recording of encoding hidden."""
        factors = [recording.arrays.get(name) for name in ("markov_w1", "markov_w2")]
        banned = recording.banned_tokens
        names = ("confidence_hidden", "confidence_parent", "confidence_bias")
        confidence = [recording[name] for name in names] if names[0] in recording else None
        return cls(recording.vocab_size, recording["head"], *factors, banned, confidence)

    def kept(self) -> Head:
        """The head as the kernel reads it, over as many parent tokens as the memory allows."""
        if self.arrays is None:
            from simulator.orders.kernels import best_first as kernel

            vocab, runs = self.vocab_size, kernel.runs(self.vocab_size)
            count = int(min(max(ROW_BYTES // (16 * vocab), 1), vocab)) if self.conditioned else 1
            self.arrays = kernel.Head(
                w1=self.w1,
                w2=self.w2,
                slot=np.full(vocab, -1),
                owner=np.full(count, -1),
                cursor=np.zeros(1, np.int64),
                rows=np.zeros((count + 1, vocab)),
                exps=np.ones((count + 1, runs, kernel.RUN)),
                peak=np.zeros(count + 1),
                banned=self.banned,
            )
        return self.arrays

    def fill(self) -> None:
        """Compute bias rows ahead of the first block, as many as there is room for."""
        from simulator.orders.kernels import best_first as kernel

        kernel.fill_rows(self.kept())

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """(n, D, V) float64 logits before the Markov bias of hidden states (n, D, d)."""
        if self.head is None:
            raise InputError("DraftHead: hidden states given, but no head")
        n, depths, width = hidden.shape
        # whole register tiles, so that a row comes out the same whatever its neighbours
        rows = np.zeros((-(-n * depths // 16) * 16, width))
        rows[: n * depths] = hidden.reshape(-1, width)
        return (rows @ self.head.T)[: n * depths].reshape(n, depths, self.vocab_size)


@dataclass(frozen=True, slots=True, eq=False)
class BlockScores:
    """Scores of n freshly drafted blocks: pools, or logits or hidden states with a DraftHead.

    Logits are those before the Markov bias. Raises InputError when neither is given whole.
    """

    pool_token: np.ndarray | None = None  # (n, D, K)
    pool_logprob: np.ndarray | None = None  # (n, D, K), falling
    logits: np.ndarray | None = None  # (n, D, V)
    hidden: np.ndarray | None = None  # (n, D, d)
    head: DraftHead | None = None
    anchor_token: np.ndarray | None = None  # (n,)
    confidence_logit: np.ndarray | None = None  # (n, D) of the head, without the parent's part

    def __post_init__(self) -> None:
        pool = self.pool_token is not None and self.pool_logprob is not None
        full = (self.logits is None) != (self.hidden is None)
        if pool == full or (full and (self.head is None or self.anchor_token is None)):
            raise InputError(
                "BlockScores: accepted: pool_token and pool_logprob, or one of logits and hidden"
                " with head and anchor_token"
            )

    @property
    def pooled(self) -> bool:
        return self.pool_token is not None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(n, D, ranks known per depth)."""
        if self.pooled:
            return self.pool_logprob.shape
        scores = self.hidden if self.logits is None else self.logits
        return (*scores.shape[:2], self.head.ranks)

    @property
    def conditioned(self) -> bool:
        return not self.pooled and self.head.conditioned

    def state_confidence(self) -> np.ndarray:
        """(n, D) logits of the confidence head without the parent's part; InputError without one.

        Summed row by row: a matrix product's rounding depends on how many rows there are.
        """
        if self.head is None or self.head.confidence is None:
            raise InputError("the block: has no confidence head; accepted: orders that ask none")
        if self.confidence_logit is not None:
            return np.array(self.confidence_logit, np.float64, order="C")
        if self.hidden is None:
            raise InputError("the block: logits without confidence_logit, accepted: both")
        state, _, bias = self.head.confidence
        return (np.asarray(self.hidden, np.float64) * state).sum(axis=-1) + bias

    def full_logits(self) -> tuple[np.ndarray, np.ndarray]:
        """(n, D, V) float64, (n, D, V) float32 for the kernel to read, one of them empty.

        float32 logits are widened there, depth by depth as it is reached; bans are not applied.
        """
        if self.logits is None:
            return self.head.logits(self.hidden), NO_LOGITS[1]
        logits = np.asarray(self.logits)
        single = logits.dtype.char == "f"
        # read-only arrays are another type to numba: it would compile everything again
        if not (logits.flags.carray and logits.dtype.char in "fd"):
            logits = np.array(logits, np.float32 if single else np.float64, order="C")
        return (NO_LOGITS[0], logits) if single else (logits, NO_LOGITS[1])


def held(recording: Recording) -> tuple[int, int, bool]:
    """(depths, ranks per node, whether scores depend on the parent) of a recording."""
    if recording.encoding == "pool":
        return recording.depths, recording["pool_logprob"].shape[2], False
    if recording.encoding == "hidden":
        ranks = recording.vocab_size - len(np.unique(recording.banned_tokens))
        return recording.depths, ranks, "markov_w1" in recording
    raise InputError(
        f"{recording.source}: encoding {recording.encoding!r}, orders accept pool and hidden"
    )


def no_head() -> DraftHead:
    """What kernels are given beside a pool: this thread's, as heads have work space."""
    if not hasattr(_LOCAL, "head"):
        _LOCAL.head = DraftHead(0)
    return _LOCAL.head


def gathered(
    recording: Recording,
    step: int,
    rows_of: Callable[[np.ndarray, BlockScores], Columns],
    what: str = "orders of anchors",
    anchors: np.ndarray | None = None,
) -> Columns:
    """Rows of all anchors, or of `anchors`, built from the scores of `step` blocks at a time.

    rows_of: from anchors (n,) and their blocks to arrays of n rows. what: is shown as progress.
    """
    head = DraftHead.of(recording) if recording.encoding == "hidden" else None
    anchors = np.arange(recording.num_anchors) if anchors is None else anchors
    rows: Columns = {}
    with Progress(len(anchors), what) as progress:
        for first in range(0, max(len(anchors), 1), step):
            some = anchors[first : first + step]
            if head is None:
                pool = recording["pool_token"][some], recording["pool_logprob"][some]
                block = BlockScores(*pool)
            else:
                given = {"hidden": recording["hidden"][some], "head": head}
                block = BlockScores(**given, anchor_token=recording.anchor_tokens(some))
            part = rows_of(some, block)
            rows = rows or {
                name: np.empty((len(anchors), *array.shape[1:]), array.dtype)
                for name, array in part.items()
            }
            for name, array in part.items():
                rows[name][first : first + len(some)] = array
            progress.update(first + len(some))
    return rows
