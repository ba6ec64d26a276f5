"""Rounds of a live run against the simulator's replay: identical, or the first difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.orders import OrderTable
from simulator.results.facts import Facts
from traces.recordings.recording import Recording
from traces.recordings.schema import NEAR_TIE

COMPARED = ("anchor", "width", "accepted", "committed")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first round, in the order of the replay, that a live run made otherwise."""

    request: int
    round: int  # of the request
    replayed: tuple[int, ...]  # anchor, width, accepted, committed; empty: no such round
    live: tuple[int, ...]
    margin: float  # smallest gap that could have tipped it: of target tokens, or at the nodes' cut
    limit: float = NEAR_TIE  # gaps below it may be rounding

    @property
    def near_tie(self) -> bool:
        """Whether rounding may explain it."""
        return self.margin < self.limit

    def __str__(self) -> str:
        replayed, live = (
            ", ".join(f"{name} {value}" for name, value in zip(COMPARED, row)) or "no round"
            for row in (self.replayed, self.live)
        )
        return (
            f"request {self.request}, round {self.round}: replayed {replayed}, live {live}; "
            f"smallest margin {self.margin:.2g}"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rounds compared, requests that differ anywhere, and the first difference."""

    rounds: int
    differing: int
    first: Difference | None


def compare_rounds(
    replayed: Facts,
    live: Facts,
    recording: Recording,
    tables: Sequence[OrderTable] = (),
    outputs: Sequence[Sequence[int]] | None = None,
    limit: float = NEAR_TIE,
) -> Comparison:
    """Hold every round of every request against the replay's.

    Args:
        tables: order tables of the policy's best-first orders, a node larger than it verifies:
            the gap between the nodes it just kept and just left out counts as a margin too.
        outputs: the live tokens of every request from its first on. The margin where they leave
            the recorded text counts then: rounds can differ later than texts.
        limit: gaps below it may be rounding.
    """
    pairs = list(zip(_by_request(replayed), _by_request(live), strict=True))
    rounds, found = len(replayed.rounds["step"]), []
    for request, (ours, theirs) in enumerate(pairs):
        common = min(len(ours), len(theirs))
        unequal = np.flatnonzero((ours[:common] != theirs[:common]).any(axis=1)).tolist()
        if unequal or len(ours) != len(theirs):
            at = unequal[0] if unequal else common
            found.append((_step(replayed, request, at), request, at))
    if not found:
        return Comparison(rounds, 0, None)
    step, request, at = min(found)
    ours, theirs = (tuple(map(tuple, side.tolist())) for side in pairs[request])
    # Equal counts may hide another bonus token: the round before counts too.
    gaps = [gap for row in ours[max(at - 1, 0) : at + 1] for gap in _token_gaps(recording, row)]
    if at < len(ours):
        gaps += _cut_gaps(replayed, step, tables)
    if outputs is not None:
        sequence = int(replayed.requests["sequence"][request])
        gaps += _text_gap(recording, sequence, outputs[request])
    rows = (side[at] if at < len(side) else () for side in (ours, theirs))
    first = Difference(request, at, *rows, float(min(gaps, default=np.inf)), limit)
    return Comparison(rounds, len(found), first)


def _by_request(facts: Facts) -> list[np.ndarray]:
    """(rounds, 4) of every request, in order."""
    table = np.stack([facts.rounds[name] for name in COMPARED], axis=1)
    request = facts.rounds["request"]
    order = np.argsort(request, kind="stable")
    ends = np.cumsum(np.bincount(request, minlength=len(facts.requests["request"])))
    return np.split(table[order], ends[:-1])


def _step(facts: Facts, request: int, at: int) -> int:
    """Step of a request's round in the replay; one past its last: after all."""
    steps = facts.rounds["step"][facts.rounds["request"] == request]
    return int(steps[at]) if at < len(steps) else len(facts.steps["step"])


def _cut_gaps(facts: Facts, step: int, tables: Sequence[OrderTable]) -> list[float]:
    """Between the worst node that a step verifies and the best that it leaves out.

    Inside what is verified the order of nodes decides nothing, so gaps there explain nothing.
    """
    inside = facts.rounds["step"] == step
    anchor, width = facts.rounds["anchor"][inside], facts.rounds["width"][inside]
    gaps = []
    for table in tables:
        size, some = table.size[anchor], width > 0
        more = width < size
        kept = table.score[anchor[some], width[some] - 1]
        left = table.score[anchor[more], width[more]]
        if len(kept) and len(left):
            gaps.append(abs(float(kept.min() - left.max())))
    return gaps


def _token_gaps(recording: Recording, row: tuple[int, ...]) -> list[float]:
    """Gaps between the target's two best at the tokens that a recorded round emits."""
    anchor, _, accepted, _ = row
    if "target_margin" not in recording:
        return []
    sequence = recording.anchor_sequence[anchor]
    end = min(anchor + accepted + 1, int(recording.anchor_offset[sequence + 1]))
    return recording["target_margin"][anchor:end].tolist()


def _text_gap(recording: Recording, sequence: int, tokens: Sequence[int]) -> list[float]:
    """The gap at the first token that is not the recorded one; none at output 0."""
    recorded = recording.committed_tokens(sequence).tolist()
    other = [i for i, pair in enumerate(zip(recorded, tokens)) if pair[0] != pair[1]]
    if "target_margin" not in recording or not other or not other[0]:
        return []
    return [float(recording["target_margin"][recording.anchor_offset[sequence] + other[0] - 1])]
