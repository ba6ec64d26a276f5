"""One block as text, the same for every format that people read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.compare import Block, Row
from analysis.intervals import Estimate
from analysis.metrics import SPEEDUP, Metric

BLANK = "–"


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    best: bool = False


def headings(metrics: Sequence[Metric]) -> list[str]:
    """Column titles of the cells of a row."""
    return ["policy", "seeds", *(metric.title for metric in metrics), "step time from"]


def block_cells(block: Block, metrics: Sequence[Metric]) -> list[list[Cell]]:
    """A row of cells per policy; the best mean of a column is marked, unless all are equal."""
    columns = [_column(block, metric) for metric in metrics]
    return [
        [Cell(row.label), Cell(str(len(row.runs))), *values, Cell(origin(row.cost_shares))]
        for row, *values in zip(block.rows, *columns, strict=True)
    ]


def best_mean(block: Block, metric: Metric) -> float | None:
    """Of a metric's means; None where no end is better, or all are equal."""
    found = (row.estimate(metric.key) for row in block.rows)
    means = {one.mean for one in found if one is not None}
    if metric.better is None or len(means) < 2:
        return None
    return max(means) if metric.better == "high" else min(means)


def _column(block: Block, metric: Metric) -> list[Cell]:
    found = [row.estimate(metric.key) for row in block.rows]
    best = best_mean(block, metric)
    return [
        Cell(_show(one, row, metric), one is not None and one.mean == best)
        for one, row in zip(found, block.rows, strict=True)
    ]


def _show(one: Estimate | None, row: Row, metric: Metric) -> str:
    if one is None:
        return BLANK
    text = metric.show(one.mean)
    if one.half_width is not None:
        text += f" ±{metric.show(one.half_width)}"
    return text if one.n == len(row.runs) else f"{text} (n={one.n})"


def origin(shares: dict[str, float]) -> str:
    """What a row's step times rest on, the weakest first: a number partly modelled says so."""
    names = {"modelled": "modelled", "clamped": "clamped", "interpolated": "interp."}
    weak = [f"{names[one]} {percent(shares[one])}" for one in names if shares[one] > 0]
    return ", ".join(weak) or "measured"


def percent(share: float) -> str:
    """A share as text; what is not zero never reads 0%, what is not all never 100%."""
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{share:.0%}"


def block_notes(block: Block, metrics: Sequence[Metric]) -> list[str]:
    """What a reader of the block's table must know: requests never served, speedups missing."""
    has_speedup = any(metric.key == SPEEDUP for metric in metrics)
    return [*rejected_notes(block), *(baseline_notes(block) if has_speedup else [])]


def rejected_notes(block: Block) -> list[str]:
    """Rows whose requests were not all served, with counts over their seeds."""
    return [
        f"{row.label}: {row.rejected} of {row.requests} requests were rejected; they are in no "
        "latency and meet no objective"
        for row in block.rows
        if row.rejected
    ]


def baseline_notes(block: Block) -> list[str]:
    """Why speedups are blank, or rest on fewer seeds than their row."""
    base = block.baseline
    if all(row.label != base for row in block.rows):
        several = [row.label for row in block.rows if row.policy == base]
        if several:
            return [f"{base} ran as {', '.join(several)}: speedup left blank, see --baseline"]
        return [f"no {base} run of this setting at {block.load.title}: speedup left blank"]
    others = [row.label for row in block.rows if row.policy == base != row.label]
    also = f" as {base} (it ran as {', '.join(others)} too)" if others else ""
    return [
        f"{SPEEDUP} of {row.label} rests on {len(row.paired)} of {len(row.runs)} seeds: "
        f"{base} has no run with the others' seeds and number of prompts{also}"
        for row in block.rows
        if len(row.paired) < len(row.runs)
    ]
