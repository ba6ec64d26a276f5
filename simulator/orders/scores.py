"""Draft scores to build orders from: live blocks, and the head that conditions them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from traces.common.errors import InputError

LINE = 64  # bytes


def aligned(shape: tuple[int, ...], dtype, fill) -> np.ndarray:
    """An array full of `fill`."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + LINE, np.uint8)
    first = -raw.ctypes.data % LINE
    array = raw[first : first + size].view(dtype).reshape(shape)
    array[...] = fill
    return array


NO_LOGITS = (np.empty((0, 0, 0)), np.empty((0, 0, 0), np.float32))  # (n, D, V) of either type
ROW_BYTES = 192e6  # memory for bias rows and their exponentials; 2,048 tokens need 67 MB


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
        self.confidence = self._confidence(confidence)
        self.ranks = self.vocab_size - len(self.banned)  # known per depth
        self._bias = None
        self.plans: dict = {}  # see build
        self.last_plan = None

    def __getstate__(self) -> dict:
        """A copy makes plans of its own: they hold addresses."""
        return {**self.__dict__, "_bias": None, "plans": {}, "last_plan": None}

    def _confidence(self, parts):
        """(weights of a state (d,), a parent token's part (V,), bias) of the confidence logit."""
        if parts is None:
            return None
        state, parent, bias = (np.asarray(part, dtype=np.float64) for part in parts)
        return state, self.w1 @ parent.reshape(-1), float(bias.reshape(()))

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
    def of(cls, recording) -> DraftHead:
        """The head of a recording of encoding hidden."""
        factors = [recording.arrays.get(name) for name in ("markov_w1", "markov_w2")]
        banned = recording.banned_tokens
        names = ("confidence_hidden", "confidence_parent", "confidence_bias")
        confidence = [recording[name] for name in names] if names[0] in recording else None
        return cls(recording.vocab_size, recording["head"], *factors, banned, confidence)

    def bias(self) -> tuple[np.ndarray, ...]:
        """The fields of kernel.Bias over as many parent tokens as the memory allows."""
        if self._bias is None:
            from simulator.orders.kernels import best_first as kernel

            vocab, wide = self.vocab_size, kernel.padded(self.vocab_size)
            count = int(min(max(ROW_BYTES // (16 * vocab), 1), vocab)) if self.conditioned else 1
            rows, exp_rows = (
                aligned((count + 1, w), np.float64, x) for w, x in ((vocab, 0.0), (wide, 1.0))
            )
            slot, owner = np.full(vocab, -1), np.full(count, -1)
            cursor, peak = np.zeros(1, np.int64), np.zeros(count + 1)
            self._bias = (self.w1, self.w2, slot, owner, cursor, rows, exp_rows, peak)
        return self._bias

    def fill(self) -> None:
        """Compute bias rows ahead of the first block, as many as there is room for."""
        from simulator.orders.kernels import best_first as kernel

        kernel.fill_rows(kernel.Bias(*self.bias()))

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

    def full_logits(self) -> tuple[np.ndarray, np.ndarray]:
        """(n, D, V) float64, (n, D, V) float32 for the kernel to read, one of them empty.

        float32 logits are widened there, depth by depth as it is reached; bans are not applied.
        """
        if self.logits is None:
            return self.head.logits(self.hidden), NO_LOGITS[1]
        logits = self.logits
        if type(logits) is not np.ndarray:
            logits = np.asarray(logits)
        single = logits.dtype.char == "f"
        # read-only arrays are another type to numba: it would compile everything again
        if not (logits.flags.carray and logits.dtype.char in "fd"):
            logits = np.array(logits, np.float32 if single else np.float64, order="C")
        return (NO_LOGITS[0], logits) if single else (logits, NO_LOGITS[1])
