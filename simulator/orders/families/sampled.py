"""Trees of sampled drafts above temperature 0, replayed exactly and drafted live.

TreeSpark's loop (arXiv 2609.22098): slots, places for one more child, wait in a queue under a bound
that reads nothing undrawn. The best slot is admitted, and only then is its token drawn, from
softmax(logits / T) without replacement. So what is verified never depends on a drawn value ahead of
its admission, which is what makes recursive rejection lossless.
Replayed along a recorded text, the children of accepted nodes come from their law given the text
(a Doob transform): live rounds and replayed ones have one joint law of text and acceptance.

With a head the law is the whole softmax(logits / T). A pool holds K tokens per depth: drafts are
drawn from these alone, from q^(1/T) normalised over them. Any law makes lossless drafts if it is
the one they come from, so nothing is lumped together and replay stays exact; but these are not the
drafts of the whole law, see `sampled_error_bound`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from simulator.orders.scores import BlockScores, gathered, no_head
from simulator.orders.specs import (
    COUNT,
    FLOOR,
    PLATT,
    Columns,
    Draws,
    Kind,
    OwnOrder,
    check,
    finite,
    full_tree,
    refusal,
)
from simulator.orders.table import ABSENT, OrderTable
from traces.common.errors import InputError
from traces.recordings.recording import Recording
from traces.recordings.scores import log_softmax

if TYPE_CHECKING:
    from simulator.orders.kernels.sampled import SampledLaws, Truth

LOGIT_BYTES = 64e6  # for the logits of the anchors that are grown at once
ROWS = 1024  # full-vocabulary laws held at once by fits
ABOVE_0 = Kind("a number above 0", lambda value: finite(value, low=np.nextafter(0, 1)))
TEMPERATURES = Kind(
    "with branch 1, numbers above 0 per depth", lambda values: tuple(map(ABOVE_0.read, values))
)


@dataclass(frozen=True, slots=True)
class SampledOrder(OwnOrder):
    """Slots by falling bound; `branch` 1 is a sampled chain.

    The bound of a node's next slot is s times the largest estimate p of its undrawn tokens, s the
    product of p along the drawn path: p = q at temperature 1, or with platt (a, b)
    sigmoid(a logit q + b). With confidence (t_1, ..., t_D), for chains, p at depth k is
    sigmoid(c_k / t_k), c_k the confidence head's logit given the drawn parent, and no q is asked.
    Scores are the logs of these bounds. They fall along the order, so any first w slots may be
    verified; but score m tells of the tokens drawn before it, so a rule that is to be lossless may
    let a slot's score, and those before it, decide about that slot, and none behind it.
    temperature: of the drafts; None: the recording's. Live blocks need a number. floor: log bound
    below which no slot is admitted.
    """

    nodes: int = 63
    branch: int = 8
    depth_cap: int | None = None
    platt: tuple[float, float] | None = None
    confidence: tuple[float, ...] | None = None
    temperature: float | None = None
    floor: float | None = None
    sampled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, nodes=COUNT, branch=COUNT, depth_cap=COUNT, platt=PLATT, floor=FLOOR)
        check(self, confidence=TEMPERATURES, temperature=ABOVE_0)
        if self.confidence is not None and (self.branch != 1 or not self.confidence):
            raise refusal("SampledOrder", "confidence", self.confidence, TEMPERATURES.accepted)

    @property
    def chain(self) -> bool:
        return self.branch == 1

    def resolved(self, recording: Recording) -> SampledOrder:
        """With every default filled in; InputError for a recording without laws to sample."""
        source = recording.source
        if recording.temperature <= 0:
            raise InputError(f"{source}: temperature 0, accepted by SampledOrder: above 0")
        if recording.encoding not in ("pool", "hidden"):
            raise InputError(
                f"{source}: encoding {recording.encoding!r}, SampledOrder accepts pool and hidden"
            )
        if self.confidence is not None and "confidence_hidden" not in recording:
            raise InputError(
                f"{source}: no confidence head, accepted: SampledOrder confidence None"
            )
        return self._whole(recording.depths, recording.temperature, source)

    def columns(self, recording: Recording) -> Columns:
        spec = self.resolved(recording)

        def grown(anchors: np.ndarray, block: BlockScores) -> Columns:
            return spec.grown(block, _truth(recording, anchors, block), _keys(recording, anchors))

        step = _at_once(recording.depths, recording.vocab_size)
        return gathered(recording, step, grown, "sampled trees of anchors")

    def block_columns(
        self, block: BlockScores, realised: np.ndarray | None, draws: Draws | None
    ) -> Columns:
        """Drafts for live blocks; whether one is accepted is the verifier's: no hit rank is known.

        Raises InputError without `temperature`, or without draws.
        """
        from simulator.orders.kernels.sampled import Truth

        if draws is None or self.temperature is None:
            missing = "draws" if draws is None else "a temperature"
            raise InputError(f"SampledOrder: live blocks without {missing}, accepted: with both")
        n, depths = block.shape[:2]
        spec = self._whole(depths, self.temperature, "the block")
        candidates = block.shape[2] if block.pooled else block.head.vocab_size
        step, parts = _at_once(depths, candidates), []
        for first in range(0, max(n, 1), step):
            some, keys = (_cut(whole, slice(first, first + step)) for whole in (block, draws))
            unknown = np.zeros((some.shape[0], 0), np.int64)  # texts that are not written yet
            truth = Truth(np.zeros((0, candidates)), unknown, unknown)
            parts.append(spec.grown(some, truth, keys))
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def grown(self, block: BlockScores, truth: Truth, draws: Draws) -> Columns:
        """Trees of a resolved spec; truth: of the texts behind the block's rows."""
        from simulator.orders.kernels import sampled as kernel
        from simulator.orders.kernels.best_first import Rows

        a, b = self.platt or (1.0, 0.0)
        rule = kernel.SampledRule(
            nodes=self.nodes,
            branch=self.branch,
            depth_cap=self.depth_cap,
            inverse_t=1.0 / self.temperature,
            normal=block.pooled,
            calibrated=self.platt is not None,
            a=a,
            b=b,
            temperature=np.array(self.confidence or (), np.float64),
            floor=-np.inf if self.floor is None else self.floor,
        )
        n, depths = block.shape[:2]
        rows = {
            "score": np.full((n, self.nodes), -np.inf),
            "depth": np.zeros((n, self.nodes), np.uint8),
            "parent": np.full((n, self.nodes), -1, np.int16),
            "token": np.full((n, self.nodes), -1, np.int32),
            "size": np.zeros(n, np.int32),
            "hit_rank": np.full((n, depths), ABSENT, np.int16),
            "ties": np.zeros(n, np.int32),
        }
        seeds, index = (np.asarray(x).astype(np.uint64) for x in (draws.seeds, draws.output_index))
        stream = draws.rng
        given = np.zeros((0, 0)) if stream is None else stream.random((len(seeds), self.nodes))
        keys = kernel.Keys(seeds, index, given)
        laws = _laws(block, self.confidence is not None)
        kernel.grow(laws, truth, rule, keys, Rows(**rows))
        return rows

    def _whole(self, depths: int, temperature: float, source: str) -> SampledOrder:
        cap = self.depth_cap or min(depths, len(self.confidence or range(depths)))
        if max(cap, len(self.confidence or ())) > depths:
            raise InputError(f"SampledOrder: {cap} depths, but {source} holds {depths} depths")
        if self.confidence is not None and len(self.confidence) < cap:
            accepted = f"{cap} numbers, one per depth"
            raise refusal("SampledOrder", "confidence", self.confidence, accepted)
        nodes = min(self.nodes, full_tree(self.branch, cap))
        temperature = float(self.temperature or temperature)
        return replace(self, nodes=nodes, depth_cap=cap, temperature=temperature)


# ---------------- What drafts are drawn from, and what the target says of a text, as arrays.


def _at_once(depths: int, vocab: int) -> int:
    """Anchors whose logits are held in float64 at once."""
    return int(np.clip(LOGIT_BYTES // (8 * depths * vocab), 1, 4096))


def _cut(whole: BlockScores | Draws, rows: slice) -> BlockScores | Draws:
    names = [field.name for field in fields(whole) if field.name not in ("head", "rng")]
    arrays = {name: getattr(whole, name) for name in names if getattr(whole, name) is not None}
    return replace(whole, **{name: np.asarray(array)[rows] for name, array in arrays.items()})


def _laws(block: BlockScores, confident: bool) -> SampledLaws:
    """The laws of a block, with confidences if asked for."""
    from simulator.orders.kernels.sampled import SampledLaws

    confidence, parent = np.zeros((0, 0)), np.zeros(0)
    if confident:
        confidence, parent = block.state_confidence(), np.array(block.head.confidence[1])
    if block.pooled:
        logits = np.array(block.pool_logprob, np.float64, order="C")
        token = np.array(block.pool_token, np.int64, order="C")
        head, anchor_token = no_head(), np.zeros(len(logits), np.int64)
    else:
        logits, token = _logits(block), np.zeros((0, 0, 0), np.int64)
        head, anchor_token = block.head, np.array(block.anchor_token, np.int64)
    return SampledLaws(logits, token, anchor_token, head.kept(), confidence, parent)


def _logits(block: BlockScores) -> np.ndarray:
    """(n, D, V) float64 before the Markov bias, banned tokens at -inf, the caller's own."""
    if block.logits is None:
        logits = block.head.logits(block.hidden)
    else:
        logits = np.array(block.logits, np.float64, order="C")
    logits[..., block.head.banned] = -np.inf
    return logits


def _truth(recording: Recording, anchors: np.ndarray, block: BlockScores) -> Truth:
    """The text behind every anchor, and the target's law at each of its tokens."""
    from simulator.orders.kernels.sampled import Truth

    x = recording.realised(anchors).astype(np.int64)  # (n, D)
    rows = recording.target_row(anchors[:, None], np.arange(recording.depths))
    unique, row = np.unique(rows, return_inverse=True)
    p, row = np.exp(recording.target_logp(unique)), row.reshape(rows.shape)
    if not block.pooled:
        return Truth(p, row, x)
    token = np.asarray(block.pool_token, np.int64)
    pooled = np.ascontiguousarray(p[row[..., None], token].reshape(-1, token.shape[2]))
    match = token == x[..., None]
    x = np.where(match.any(-1), match.argmax(-1), -1)
    return Truth(pooled, np.arange(x.size).reshape(x.shape), x)


def _keys(recording: Recording, anchors: np.ndarray) -> Draws:
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
    name = "hidden" if block.logits is None else "logits"
    cut = {name: np.asarray(getattr(block, name))[row, depth, None]}
    logits = _logits(BlockScores(**cut, head=block.head, anchor_token=parent))[:, 0]
    logits += block.head.w1[parent] @ block.head.w2
    return np.exp(log_softmax(logits / temperature))


# ---------------- What estimates are fitted on, and what a pool leaves out of them.


def sampled_edges(
    recording: Recording, table: OrderTable, anchors: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(q, label, depth) of every admitted child of the anchor or of an accepted node: (edges,).

    q is the drafter's probability of the drawn token at temperature 1, label whether the child was
    accepted, depth 1-based. Fit a Platt map on them (`calibration.fit_platt`), one for each
    temperature: whether a sampled child is accepted is another event than equality with the text.
    """
    anchors = np.asarray(anchors)
    hit = table.hit_rank[anchors].astype(np.int64)  # (n, D)
    exists = np.arange(table.max_nodes) < table.size[anchors, None]
    parent, token = table.parent[anchors].astype(np.int64), table.token[anchors]
    parts = []
    for depth in range(recording.depths):
        above = hit[:, depth - 1, None] - 1 if depth else np.full((len(anchors), 1), -1)
        under = exists & (parent == above) & (table.depth[anchors] == depth + 1)
        row, node = np.nonzero(under)
        q = _path_q(recording, anchors, depth, row, token[row, node].astype(np.int64))
        parts.append((q, node == hit[row, depth] - 1, np.full(len(row), depth + 1)))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _path_q(recording, anchors, depth: int, row: np.ndarray, token: np.ndarray) -> np.ndarray:
    """Probability of tokens under the realised parents of anchors[row], row ascending."""
    if recording.encoding == "pool":
        match = recording["pool_token"][anchors[row], depth] == token[:, None]
        logq = recording["pool_logprob"][anchors[row], depth].astype(np.float64)
        return np.exp(np.where(match, logq, -np.inf).max(axis=1))
    if depth:
        parents = recording.realised(anchors)[:, depth - 1]
    else:
        parents = recording.anchor_tokens(anchors)
    q = np.empty(len(row))
    for first in range(0, len(anchors), ROWS):
        cut = slice(*np.searchsorted(row, [first, first + ROWS]))
        some = slice(first, first + ROWS)
        law = recording.conditional_logp(anchors[some], depth, parents[some])
        q[cut] = np.exp(law[row[cut] - first, token[cut]])
    return q


def sampled_error_bound(recording: Recording, anchors: np.ndarray) -> np.ndarray:
    """How far drafts from a pool may differ from those of the whole law: (n,) in [0, 1].

    Replay is exact for the drafts that are made, from the K pool tokens. Where the drafter would
    sample its whole vocabulary, a slot's token comes from another law, in total variation by the
    tail that the pool leaves out, so the chance that a first child is accepted differs by no more.
    (Pools hold the law at temperature 1; the drafts of colder ones leave out less.) The largest
    over an anchor's depths; 0 where the recording holds the whole law.
    """
    anchors = np.asarray(anchors)
    if recording.encoding == "hidden":
        return np.zeros(len(anchors))
    if recording.encoding != "pool":
        raise InputError(f"{recording.source}: encoding {recording.encoding}, accepted: pool")
    held = np.exp(recording["pool_logprob"][anchors].astype(np.float64)).sum(axis=-1)  # (n, D)
    return np.clip(1.0 - held, 0.0, 1.0).max(axis=1)
