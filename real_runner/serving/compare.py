"""Rounds of a live run against the simulator's replay: identical, or the first difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.ledger import Facts
from traces.recording import Recording
from traces.schema import NEAR_TIE

COMPARED = ("anchor", "width", "accepted", "committed")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first round, in the order of the replay, that a live run made otherwise."""

    request: int
    round: int  # of the request
    replayed: tuple[int, ...]  # anchor, width, accepted, committed; empty: no such round
    live: tuple[int, ...]
    margin: float  # smallest gap that could have tipped it: between target tokens or node scores

    @property
    def near_tie(self) -> bool:
        """Whether rounding may explain it."""
        return self.margin < NEAR_TIE

    def __str__(self) -> str:
        return (
            f"request {self.request}, round {self.round}: replayed {_named(self.replayed)}, live "
            f"{_named(self.live)}; smallest margin {self.margin:.2g}"
        )


def _named(row: tuple[int, ...]) -> str:
    pairs = zip(COMPARED, row, strict=False)
    return ", ".join(f"{name} {value}" for name, value in pairs) or "no round"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rounds compared, requests that differ anywhere, and the first difference."""

    rounds: int
    differing: int
    first: Difference | None


def compare_rounds(replayed: Facts, live: Facts, recording: Recording, tables=None) -> Comparison:
    """Hold every round of every request against the replay's.

    tables: order tables of the policy's orders by spec, whose score gaps count as margins too.
    """
    ours, theirs = _by_request(replayed), _by_request(live)
    found = []
    for request in range(len(ours)):
        at = _first_unequal(ours[request], theirs[request])
        if at is not None:
            found.append((request, at))
    first = None
    if found:
        request, at = min(found, key=lambda pair: _step(replayed, *pair))
        rows = [_row(side[request], at) for side in (ours, theirs)]
        first = Difference(request, at, *rows, _margin(recording, rows[0] or rows[1], tables))
    return Comparison(len(replayed.rounds["step"]), len(found), first)


def _by_request(facts: Facts) -> list[np.ndarray]:
    """(rounds, 4) of every request, in order."""
    table = np.stack([facts.rounds[name] for name in COMPARED], axis=1)
    request = facts.rounds["request"]
    order = np.argsort(request, kind="stable")
    ends = np.cumsum(np.bincount(request, minlength=len(facts.requests["request"])))
    return np.split(table[order], ends[:-1])


def _first_unequal(ours: np.ndarray, theirs: np.ndarray) -> int | None:
    common = min(len(ours), len(theirs))
    unequal = np.flatnonzero((ours[:common] != theirs[:common]).any(axis=1))
    if len(unequal):
        return int(unequal[0])
    return None if len(ours) == len(theirs) else common


def _row(rows: np.ndarray, at: int) -> tuple[int, ...]:
    return tuple(rows[at].tolist()) if at < len(rows) else ()


def _step(facts: Facts, request: int, at: int) -> int:
    """Step of a request's round in the replay; one past its last: after all."""
    steps = facts.rounds["step"][facts.rounds["request"] == request]
    return int(steps[at]) if at < len(steps) else len(facts.steps["step"])


def _margin(recording: Recording, row: tuple[int, ...], tables) -> float:
    """The smallest gap at the anchors of a round: target's two best tokens, neighbouring nodes."""
    anchor, _, accepted, _ = row
    sequence = recording.anchor_sequence[anchor]
    end = min(anchor + accepted + 1, int(recording.anchor_offset[sequence + 1]))
    gaps = []
    if "target_margin" in recording:
        gaps += recording["target_margin"][anchor:end].tolist()
    for table in tables or ():
        score = table.score[anchor, : table.size[anchor]]
        gaps += np.abs(np.diff(score)).tolist()
    return float(min(gaps, default=np.inf))
