"""The drafter's argmax chain with a survival of its own: from confidence, margin or q.

Tokens and hit ranks are those of `ChainOrder`; policies that cut chains differ in how they tell
how far one will last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from simulator.orders.build import build_block
from simulator.orders.cache import order_table
from simulator.orders.scores import Q_MAX, BlockScores, DraftHead, logit
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
CHUNK = 1024  # anchors whose states are held in float64 at once

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
        spec = self._whole(recording.depths, recording.source)
        table = order_table(ChainOrder(len(spec.maps)), recording)
        return spec._scored(table, spec._recorded(recording, table))

    def block_columns(
        self, block: BlockScores, realised: np.ndarray | None, draws: Draws | None
    ) -> Columns:
        spec = self._whole(block.shape[1], "the block")
        table = build_block(ChainOrder(len(spec.maps)), block, realised)
        return spec._scored(table, spec._live(block, table))

    def _whole(self, depths: int, source: str) -> ScoredChain:
        if self.maps is None:
            return replace(self, maps=((1.0, 0.0),) * depths)
        if not 1 <= len(self.maps) <= depths:
            raise InputError(
                f"ScoredChain maps: {len(self.maps)} pairs, but {source} holds {depths} depths"
            )
        return self

    def _scored(self, table: OrderTable, evidence: np.ndarray) -> Columns:
        slope, level, places = _constants(self.maps)
        exists = places < table.size[:, None]  # (n, length)
        survival = -np.logaddexp(0.0, slope * evidence - level).cumsum(axis=1)
        score = np.where(exists, survival, -np.inf)
        same = (score[:, 1:] == score[:, :-1]) & exists[:, 1:]
        kept = {name: getattr(table, name) for name in ("depth", "parent", "token", "size")}
        ties = same.sum(axis=1).astype(np.int32)
        return kept | {"score": score, "hit_rank": table.hit_rank, "ties": ties}

    def _recorded(self, recording: Recording, table: OrderTable) -> np.ndarray:
        """Evidence at every anchor: (A, length)."""
        if self.evidence == "confidence":
            return _recorded_confidence(recording, table)
        if self.evidence == "q":
            return _logit_q(table)
        if recording.encoding == "pool":
            return _pool_margin(recording["pool_logprob"], table.max_nodes)
        return _comb_margin(order_table(_comb(table.max_nodes), recording))

    def _live(self, block: BlockScores, table: OrderTable) -> np.ndarray:
        """Evidence of n live blocks: (n, length)."""
        if self.evidence == "confidence":
            states = block.state_confidence()[:, : table.max_nodes]
            return states + _parents_part(block.head, block.anchor_token, table)
        if self.evidence == "q":
            return _logit_q(table)
        if block.pooled:
            _two_ranks(block.shape[2], "the block")
            return _pool_margin(block.pool_logprob, table.max_nodes)
        return _comb_margin(build_block(_comb(table.max_nodes), block))


@lru_cache(maxsize=64)
def _constants(maps: Maps) -> tuple[np.ndarray, ...]:
    """-a, b and the places of a chain: (length,) each."""
    a, b = np.array(maps).T
    return -a, b, np.arange(len(a))


def has_confidence(recording: Recording) -> bool:
    """Whether the argmax chain's confidences are known."""
    return "confidence_hidden" in recording or "confidence" in recording


def _recorded_confidence(recording: Recording, table: OrderTable) -> np.ndarray:
    """Confidence logits along the chains of `table`: (A, length).

    From the head where it is recorded, so that replay and live agree to the last digit; the
    recorded probabilities (of the same chain, but of few digits) only where it is not.
    """
    length = table.max_nodes
    if "confidence_hidden" not in recording:
        stored = recording["confidence"][:, :length]
        kind = np.finfo(stored.dtype)  # 0 and 1 stand for what the type rounds to them
        low, high = float(kind.smallest_subnormal) / 2, 1 - float(kind.eps) / 4
        return logit(np.clip(stored.astype(np.float64), low, high))
    head, logits = DraftHead.of(recording), []
    tokens = recording.anchor_tokens(table.anchors)
    for first in range(0, recording.num_anchors, CHUNK):
        rows = slice(first, first + CHUNK)
        hidden = recording["hidden"][rows, :length]
        block = BlockScores(hidden=hidden, head=head, anchor_token=tokens[rows])
        logits.append(block.state_confidence())
    return np.concatenate(logits) + _parents_part(head, tokens, table)


def _parents_part(head: DraftHead, anchor_token: np.ndarray, table: OrderTable) -> np.ndarray:
    """The part of every chain node's parent token: (n, length); missing nodes get any."""
    parents = np.empty(table.token.shape, np.int64)
    parents[:, 0], parents[:, 1:] = anchor_token, table.token[:, :-1]
    return head.confidence[1][parents]


def _logit_q(table: OrderTable) -> np.ndarray:
    edge = table.score.copy()
    edge[:, 1:] -= table.score[:, :-1]
    return logit(np.exp(edge))


def _pool_margin(logprob: np.ndarray, length: int) -> np.ndarray:
    best = np.asarray(logprob[:, :length, :2], np.float64)
    return np.minimum(best[..., 0] - best[..., 1], LARGEST)


def _comb(length: int) -> StaticOrder:
    """The chain with the second best child of each of its nodes: pairs of one depth."""
    return StaticOrder(widths=(2,) * length, tail_chain=False)


def _comb_margin(comb: OrderTable) -> np.ndarray:
    return np.minimum(comb.score[:, 0::2] - comb.score[:, 1::2], LARGEST)


def _two_ranks(ranks: int, source: str) -> None:
    if ranks < 2:
        raise InputError(f"ScoredChain margin: needs 2 ranks per depth, but {source} holds {ranks}")
