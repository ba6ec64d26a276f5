"""The drafter's argmax chain with a survival of its own: from confidence, margin or q.

Tokens and hit ranks are those of `ChainOrder`; policies that cut chains differ in how they tell
how far one will last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from simulator.orders.build import CHUNK, build_block
from simulator.orders.scores import Q_MAX, BlockScores, gathered, logit
from simulator.orders.specs import (
    ChainOrder,
    Columns,
    Draws,
    Kind,
    OwnOrder,
    StaticOrder,
    check,
    finite,
    one_of,
)
from simulator.orders.table import OrderTable
from traces.common.errors import InputError
from traces.recordings.recording import Recording

EVIDENCE = ("confidence", "margin", "q")
LARGEST = float(logit(Q_MAX))  # margins beyond say no more: q is clamped there as well

Maps = tuple[tuple[float, float], ...]


def _pair(value) -> tuple[float, float]:
    a, b = map(finite, value)
    return a, b


PAIR = Kind("a finite pair (a, b) per depth", _pair)


@dataclass(frozen=True, slots=True)
class ScoredChain(OwnOrder):
    """The argmax chain; score at depth d: the sum of log sigmoid(a_k x_k + b_k) over k <= d.

    evidence x: "confidence" is the logit of the confidence head given the chain's parent token,
    "margin" the difference between the two best log-probabilities of the depth, "q" the logit of
    the token's own probability. maps: (a_k, b_k) per depth, as long as the chain; None: the whole
    chain, every pair (1, 0).
    """

    evidence: str = "confidence"
    maps: Maps | None = None
    chain: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, evidence=one_of(EVIDENCE), maps=[PAIR])

    def resolved(self, recording: Recording) -> ScoredChain:
        """With a pair per depth; InputError if the recording lacks depths or the evidence."""
        spec = self._whole(recording.depths, recording.source)
        if self.evidence == "confidence" and not has_confidence(recording):
            raise InputError(
                f"{recording.source}: records no confidence, accepted by ScoredChain: margin, q"
            )
        if self.evidence == "margin" and recording.encoding == "pool":
            _two_ranks(recording["pool_logprob"].shape[2], recording.source)
        return spec

    def columns(self, recording: Recording) -> Columns:
        """From the confidence head where it is recorded, so that replay and live agree to the last
        digit; the recorded probabilities (of the same chain, but of few digits) only where not.
        """
        spec = self._whole(recording.depths, recording.source)
        stored = self.evidence == "confidence" and "confidence_hidden" not in recording

        def rows_of(anchors: np.ndarray, block: BlockScores) -> Columns:
            known = _logit_of_stored(recording["confidence"][anchors]) if stored else None
            return spec._scored(block, recording.realised(anchors), known)

        return gathered(recording, CHUNK if recording.encoding == "hidden" else 4096, rows_of)

    def block_columns(
        self, block: BlockScores, realised: np.ndarray | None, draws: Draws | None
    ) -> Columns:
        return self._whole(block.shape[1], "the block")._scored(block, realised, None)

    def _whole(self, depths: int, source: str) -> ScoredChain:
        if self.maps is None:
            return replace(self, maps=((1.0, 0.0),) * depths)
        if not 1 <= len(self.maps) <= depths:
            raise InputError(
                f"ScoredChain maps: {len(self.maps)} pairs, but {source} holds {depths} depths"
            )
        return self

    def _scored(self, block: BlockScores, realised, known: np.ndarray | None) -> Columns:
        """The rows of n blocks; known: evidence (n, depths) that was recorded."""
        length = len(self.maps)
        table = build_block(ChainOrder(length), block, realised)
        evidence = self._evidence(block, table) if known is None else known[:, :length]
        slope, level, places = _constants(self.maps)
        exists = places < table.size[:, None]  # (n, length)
        survival = -np.logaddexp(0.0, slope * evidence - level).cumsum(axis=1)
        score = np.where(exists, survival, -np.inf)
        same = (score[:, 1:] == score[:, :-1]) & exists[:, 1:]
        kept = ("depth", "parent", "token", "size", "hit_rank")
        columns = {name: getattr(table, name) for name in kept}
        return columns | {"score": score, "ties": same.sum(axis=1).astype(np.int32)}

    def _evidence(self, block: BlockScores, table: OrderTable) -> np.ndarray:
        """Of n blocks along the chains of `table`: (n, length)."""
        length = table.max_nodes
        if self.evidence == "confidence":
            logits = block.state_confidence()[:, :length]
            parents = np.empty(table.token.shape, np.int64)  # missing nodes get any
            parents[:, 0], parents[:, 1:] = block.anchor_token, table.token[:, :-1]
            return logits + block.head.confidence[1][parents]
        if self.evidence == "q":
            edge = table.score.copy()
            edge[:, 1:] -= table.score[:, :-1]
            return logit(np.exp(edge))
        if block.pooled:
            _two_ranks(block.shape[2], "the block")
            best = np.asarray(block.pool_logprob[:, :length, :2], np.float64)
            return np.minimum(best[..., 0] - best[..., 1], LARGEST)
        # the chain with the second best child of each of its nodes: pairs of one depth
        comb = build_block(StaticOrder(widths=(2,) * length, tail_chain=False), block).score
        return np.minimum(comb[:, 0::2] - comb[:, 1::2], LARGEST)


@lru_cache(maxsize=64)
def _constants(maps: Maps) -> tuple[np.ndarray, ...]:
    """-a, b and the places of a chain: (length,) each."""
    a, b = np.array(maps).T
    return -a, b, np.arange(len(a))


def has_confidence(recording: Recording) -> bool:
    """Whether the argmax chain's confidences are known."""
    return "confidence_hidden" in recording or "confidence" in recording


def _logit_of_stored(confidence: np.ndarray) -> np.ndarray:
    """logit of stored probabilities; 0 and 1 stand for what their type rounds to them."""
    kind = np.finfo(confidence.dtype)
    low, high = float(kind.smallest_subnormal) / 2, 1 - float(kind.eps) / 4
    return logit(np.clip(confidence.astype(np.float64), low, high))


def _two_ranks(ranks: int, source: str) -> None:
    if ranks < 2:
        raise InputError(f"ScoredChain margin: needs 2 ranks per depth, but {source} holds {ranks}")
