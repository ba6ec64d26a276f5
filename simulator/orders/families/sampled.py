"""Trees of sampled drafts above temperature 0, replayed exactly and drafted live.

TreeSpark's loop (arXiv 2609.22098): slots, places for one more child, wait in a queue under a bound
that reads nothing undrawn. The best slot is admitted, and only then is its token drawn, from
softmax(logits / T) without replacement. So what is verified never depends on a drawn value ahead of
its admission, which is what makes recursive rejection lossless.
Replayed along a recorded text, the children of accepted nodes come from their law given the text
(a Doob transform): live rounds and replayed ones have one joint law of text and acceptance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Real
from typing import ClassVar

import numpy as np

from simulator.orders.families import sampled_laws as laws
from simulator.orders.families.base import Columns, Draws, OwnOrder
from simulator.orders.scores import BlockScores, head_of, recorded_block
from simulator.orders.shape import full_tree
from simulator.orders.specs import MAX_NODES, refusal
from simulator.orders.table import ABSENT
from simulator.progress import Progress
from traces.common.errors import InputError
from traces.recordings.recording import Recording


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
        for name in ("nodes", "branch", "depth_cap"):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not (value is None and name == "depth_cap") and not (
                whole and 1 <= value <= MAX_NODES
            ):
                _refuse(name, value, f"an integer in 1..{MAX_NODES}")
        if self.platt is not None:
            pair = _numbers("platt", self.platt)
            if len(pair) != 2 or pair[0] <= 0:  # a <= 0 would reverse the bounds
                _refuse("platt", self.platt, "(a, b) finite with a > 0")
            object.__setattr__(self, "platt", pair)
        if self.confidence is not None:
            temperatures = _numbers("confidence", self.confidence)
            if self.branch != 1 or not temperatures or min(temperatures) <= 0:
                _refuse("confidence", self.confidence, "with branch 1, numbers above 0 per depth")
            object.__setattr__(self, "confidence", temperatures)
        if self.temperature is not None and _numbers("temperature", [self.temperature])[0] <= 0:
            _refuse("temperature", self.temperature, "a number above 0")
        if self.floor is not None and _numbers("floor", [self.floor])[0] > 0:
            _refuse("floor", self.floor, "a finite log, at most 0")

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
        head = head_of(recording)
        step, parts = laws.anchors_at_once(recording.depths, recording.vocab_size), []
        with Progress(recording.num_anchors, "sampled trees of anchors") as progress:
            for first in range(0, recording.num_anchors, step):
                anchors = np.arange(first, min(first + step, recording.num_anchors))
                block = recorded_block(recording, anchors, head)
                truth = laws.kernel_truth(recording, anchors, block)
                parts.append(spec.grown(block, truth, laws.recorded_draws(recording, anchors)))
                progress.update(first + len(anchors))
        return _joined(parts, recording.depths, spec.nodes)

    def block_columns(
        self, block: BlockScores, realised: np.ndarray | None, draws: Draws | None
    ) -> Columns:
        """Drafts for live blocks; whether one is accepted is the verifier's: no hit rank is known.

        Raises InputError without `temperature`, or without draws.
        """
        if draws is None or self.temperature is None:
            missing = "draws" if draws is None else "a temperature"
            raise InputError(f"SampledOrder: live blocks without {missing}, accepted: with both")
        n, depths = block.shape[:2]
        spec = self._whole(depths, self.temperature, "the block")
        step = laws.anchors_at_once(depths, laws.candidates(block))
        parts = []
        for cut in (slice(first, first + step) for first in range(0, n, step)):
            some, keys = laws.part(block, cut), laws.part_of_draws(draws, cut)
            parts.append(spec.grown(some, laws.no_truth(some), keys))
        return _joined(parts, depths, spec.nodes)

    def grown(self, block: BlockScores, truth, draws: Draws) -> Columns:
        """Trees of a resolved spec; truth: kernel.Truth of the texts behind the block's rows."""
        from simulator.orders.kernels import sampled as kernel

        confident = self.confidence is not None
        rule = kernel.SampledRule(
            nodes=self.nodes,
            branch=self.branch,
            depth_cap=self.depth_cap,
            inverse_t=1.0 / self.temperature,
            normal=block.pooled,
            calibrated=self.platt is not None,
            a=(self.platt or (1.0, 0.0))[0],
            b=(self.platt or (1.0, 0.0))[1],
            temperature=np.array(self.confidence or (), np.float64),
            floor=-np.inf if self.floor is None else float(self.floor),
        )
        rows, keys = _empty_rows(*block.shape[:2], self.nodes), laws.kernel_keys(draws, self.nodes)
        kernel.grow(
            laws.kernel_laws(block, confident), truth, rule, keys, kernel.SampledRows(**rows)
        )
        return rows

    def _whole(self, depths: int, temperature: float, source: str) -> SampledOrder:
        cap = self.depth_cap or min(depths, len(self.confidence or range(depths)))
        if max(cap, len(self.confidence or ())) > depths:
            raise InputError(f"SampledOrder: {cap} depths, but {source} holds {depths} depths")
        if self.confidence is not None and len(self.confidence) < cap:
            _refuse("confidence", self.confidence, f"{cap} numbers, one per depth")
        nodes = min(self.nodes, full_tree(self.branch, cap))
        temperature = float(self.temperature or temperature)
        return replace(self, nodes=int(nodes), depth_cap=int(cap), temperature=temperature)


def _refuse(name: str, value, accepted: str) -> None:
    raise refusal("SampledOrder", name, value, accepted)


def _numbers(name: str, values) -> tuple[float, ...]:
    values = tuple(values) if isinstance(values, Iterable) and not isinstance(values, str) else None
    if values is None or not all(
        isinstance(v, Real) and not isinstance(v, bool) and abs(v) < float("inf") for v in values
    ):
        _refuse(name, values, "finite numbers")
    return tuple(float(v) for v in values)


def _empty_rows(n: int, depths: int, nodes: int) -> Columns:
    """Arrays for the kernel to fill, paddings in place."""
    return {
        "score": np.full((n, nodes), -np.inf),
        "depth": np.zeros((n, nodes), np.uint8),
        "parent": np.full((n, nodes), -1, np.int16),
        "token": np.full((n, nodes), -1, np.int32),
        "size": np.zeros(n, np.int32),
        "hit_rank": np.full((n, depths), ABSENT, np.int16),
        "ties": np.zeros(n, np.int32),
    }


def _joined(parts: list[Columns], depths: int, nodes: int) -> Columns:
    """One after the other; one block as it is."""
    if len(parts) == 1:
        return parts[0]
    empty = _empty_rows(0, depths, nodes)
    return {name: np.concatenate([empty[name], *(p[name] for p in parts)]) for name in empty}
