"""Comparisons, rows of them, and what they say about a claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.studies.report import sign
from traces.common.intervals import Interval, interval

CONFIRMED, REFUTED, UNDECIDED, MIXED = "confirmed", "refuted", "not decided", "mixed"


@dataclass(frozen=True, slots=True)
class Claim:
    """What is said. every: it must hold in every cell of a row, not in their mean."""

    name: str
    statement: str
    ratio: str  # of what to what
    every: bool = False


@dataclass(frozen=True, slots=True)
class Where:
    """The row a comparison belongs to; profile and setting are empty where there is none."""

    claim: str
    recording: str
    profile: str = ""
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: its value, and its draft nodes per request and round."""

    value: float
    nodes: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """One comparison."""

    where: Where
    at: str  # column: a node budget, a threshold or a concurrency
    unit: str
    ours: Side
    other: Side
    log_draws: np.ndarray  # (resamples,) of log(ours / other), shared prompts
    prompts: int
    beyond_table: bool = False  # steps of either side lie outside what was measured

    @property
    def same(self) -> bool:
        """Both sides did the same (or it made no difference to any prompt)."""
        return self.ours == self.other and not self.log_draws.any()

    @property
    def ratio(self) -> Interval:
        return interval(self.ours.value / self.other.value, np.exp(self.log_draws), self.prompts)

    @property
    def verdict(self) -> str:
        return judged(self.ratio)


@dataclass(frozen=True, slots=True)
class Row:
    """All comparisons of one place, and their geometric mean under shared resamples."""

    claim: Claim
    where: Where
    cells: tuple[Comparison, ...]

    @property
    def ratio(self) -> Interval:
        logs = [np.log(cell.ours.value / cell.other.value) for cell in self.cells]
        draws = np.mean([cell.log_draws for cell in self.cells], axis=0)
        prompts = min(cell.prompts for cell in self.cells)
        return interval(float(np.exp(np.mean(logs))), np.exp(draws), prompts)

    @property
    def verdict(self) -> str:
        if not self.claim.every:
            return judged(self.ratio)
        found = [cell.verdict for cell in self.cells]
        if REFUTED in found:
            return REFUTED  # one counter-example is enough
        return CONFIRMED if set(found) == {CONFIRMED} else UNDECIDED


def judged(ratio: Interval) -> str:
    """Not decided without an interval, and where it includes 1 (as when both did the same)."""
    return {"+": CONFIRMED, "-": REFUTED, " ": UNDECIDED}[sign(ratio)]


def overall(rows: Sequence[Row]) -> str:
    """The verdict that all rows share; mixed where some confirm and others refute."""
    found = {row.verdict for row in rows}
    if found >= {CONFIRMED, REFUTED}:
        return MIXED
    return found.pop() if len(found) == 1 else UNDECIDED


def rows_of(claim: Claim, cells: Sequence[Comparison]) -> list[Row]:
    """The claim's rows, in the order in which they were compared."""
    own = [cell for cell in cells if cell.where.claim == claim.name]
    places = dict.fromkeys(cell.where for cell in own)
    return [Row(claim, place, tuple(c for c in own if c.where == place)) for place in places]
