"""What sampled drafts are drawn from, and what the target says of a recorded text, as arrays.

With a head the law is the whole softmax(logits / T). A pool holds K tokens per depth: drafts are
drawn from these alone, from q^(1/T) normalised over them. Any law makes lossless drafts if it is
the one they come from, so nothing is lumped together and replay stays exact; but these are not the
drafts of the whole law, see `sampled_error_bound`.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from simulator.orders.families.base import Draws
from simulator.orders.scores import BlockScores, DraftHead
from traces.common.errors import InputError
from traces.recordings.recording import Recording
from traces.recordings.scores import log_softmax

BIAS_BYTES = 96e6  # memory for bias rows; those of 2,048 tokens need 34 MB
HELD_BYTES = 64e6  # for the logits of the anchors that are grown at once
_bias: WeakKeyDictionary[DraftHead, tuple[np.ndarray, ...]] = WeakKeyDictionary()


def anchors_at_once(depths: int, vocab: int) -> int:
    """Anchors whose logits are held in float64 at once."""
    return int(np.clip(HELD_BYTES // (8 * depths * vocab), 1, 4096))


def part(block: BlockScores, rows: slice) -> BlockScores:
    """Some rows of a block."""
    names = ("pool_token", "pool_logprob", "logits", "hidden", "anchor_token", "confidence_logit")
    given = {name: getattr(block, name) for name in names if getattr(block, name) is not None}
    cut = {name: np.asarray(array)[rows] for name, array in given.items()}
    return BlockScores(**cut, head=block.head)


def part_of_draws(draws: Draws, rows: slice) -> Draws:
    """Those of some rows of a block."""
    seeds, index = (np.asarray(key)[rows] for key in (draws.seeds, draws.output_index))
    return Draws(seeds, index, draws.rng)


def candidates(block: BlockScores) -> int:
    """W: tokens per depth that may be drawn."""
    return block.shape[2] if block.pooled else block.head.vocab_size


def kernel_laws(block: BlockScores, confident: bool):
    """kernel.SampledLaws of the block, with confidences if asked for."""
    from simulator.orders.kernels import sampled as kernel

    confidence = state_confidence(block) if confident else np.zeros((0, 0))
    parent = np.array(block.head.confidence[1]) if confident else np.zeros(0)
    if block.pooled:
        logits = np.array(block.pool_logprob, np.float64, order="C")
        token = np.array(block.pool_token, np.int64, order="C")
        anchor_token, none = np.zeros(len(logits), np.int64), np.zeros((1, 0))
        rows = (none, none.T, *(np.zeros(1, np.int64) for _ in range(3)), np.zeros((1, 1)))
    else:
        logits, token = _logits(block), np.zeros((0, 0, 0), np.int64)
        anchor_token = np.array(block.anchor_token, np.int64)
        rows = (block.head.w1, block.head.w2, *_bias_rows(block.head))
    return kernel.SampledLaws(logits, token, anchor_token, *rows, confidence, parent)


def _logits(block: BlockScores) -> np.ndarray:
    """(n, D, V) float64 before the Markov bias, banned tokens at -inf, the caller's own."""
    if block.logits is None:
        logits = block.head.logits(block.hidden)
    else:
        logits = np.array(block.logits, np.float64, order="C")
    logits[..., block.head.banned] = -np.inf
    return logits


def _bias_rows(head: DraftHead) -> tuple[np.ndarray, ...]:
    """slot, owner, cursor and bias of kernel.SampledLaws, kept from block to block."""
    if head not in _bias:
        vocab = head.vocab_size
        count = int(np.clip(BIAS_BYTES // (8 * vocab), 1, vocab)) if head.conditioned else 1
        slot, owner = np.full(vocab, -1), np.full(count, -1)
        _bias[head] = slot, owner, np.zeros(1, np.int64), np.empty((count, vocab))
    return _bias[head]


def state_confidence(block: BlockScores) -> np.ndarray:
    """(n, D) confidence logits without the parent's part."""
    if block.head is None or block.head.confidence is None:
        raise InputError(
            "the block: has no confidence head, accepted: SampledOrder confidence None"
        )
    if block.confidence_logit is not None:
        return np.array(block.confidence_logit, np.float64, order="C")
    if block.hidden is None:
        raise InputError("the block: logits without confidence_logit, accepted: both")
    state, _, bias = block.head.confidence
    # row by row: a matrix product's rounding depends on how many rows there are
    return (np.asarray(block.hidden, np.float64) * state).sum(axis=-1) + bias


def kernel_truth(recording: Recording, anchors: np.ndarray, block: BlockScores):
    """kernel.Truth: the text behind every anchor, and the target's law at each of its tokens."""
    from simulator.orders.kernels import sampled as kernel

    x = recording.realised(anchors).astype(np.int64)  # (n, D)
    rows = recording.target_row(anchors[:, None], np.arange(recording.depths))
    unique, row = np.unique(rows, return_inverse=True)
    p, row = np.exp(recording.target_logp(unique)), row.reshape(rows.shape)
    if not block.pooled:
        return kernel.Truth(p, row, x)
    token = np.asarray(block.pool_token, np.int64)
    pooled = np.ascontiguousarray(p[row[..., None], token].reshape(-1, token.shape[2]))
    match = token == x[..., None]
    x = np.where(match.any(-1), match.argmax(-1), -1)
    return kernel.Truth(pooled, np.arange(x.size).reshape(x.shape), x)


def no_truth(block: BlockScores):
    """kernel.Truth of texts that are not written yet."""
    from simulator.orders.kernels import sampled as kernel

    unknown = np.zeros((block.shape[0], 0), np.int64)
    return kernel.Truth(np.zeros((0, candidates(block))), unknown, unknown)


def kernel_keys(draws: Draws, nodes: int):
    """kernel.Keys: keyed draws, or `nodes` of a stream for every tree."""
    from simulator.orders.kernels import sampled as kernel

    seeds = np.asarray(draws.seeds).astype(np.uint64)
    index = np.asarray(draws.output_index).astype(np.uint64)
    given = np.zeros((0, 0)) if draws.rng is None else draws.rng.random((len(seeds), nodes))
    return kernel.Keys(seeds, index, given)


def recorded_draws(recording: Recording, anchors: np.ndarray) -> Draws:
    """The keys of a recording's requests; those without seeds are numbered, as when served."""
    count = np.arange(recording.num_sequences)
    seeds = recording.arrays.get("seq_request_seed", count)[recording.anchor_sequence[anchors]]
    return Draws(seeds, recording.anchor_output[anchors])


def draft_law(
    block: BlockScores,
    row: np.ndarray,
    depth: int,
    parent: np.ndarray,
    temperature: float,
    vocab: int,
) -> np.ndarray:
    """(n, vocab) law q that children are drawn from, the first of them; for whoever verifies them.

    row (n,) of the block, 0-based depth, parent (n,) tokens.
    """
    if block.pooled:
        law = np.zeros((len(row), vocab))
        logq = np.asarray(block.pool_logprob)[row, depth].astype(np.float64) / temperature
        token = np.asarray(block.pool_token)[row, depth].astype(np.int64)
        np.put_along_axis(law, token, np.exp(log_softmax(logq)), axis=1)
        return law
    scores = block.hidden if block.logits is None else block.logits
    cut = {"hidden" if block.logits is None else "logits": np.asarray(scores)[row, depth, None]}
    logits = _logits(BlockScores(**cut, head=block.head, anchor_token=parent))[:, 0]
    logits += block.head.w1[parent] @ block.head.w2
    return np.exp(log_softmax(logits / temperature))
