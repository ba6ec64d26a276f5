"""From samples to the rows of a latency profile."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from real_runner.probing.grid import Cell, PrefillCell, StepCell
from real_runner.probing.samples import Samples
from simulator.cost import DraftRow, PrefillRow, VerifyRow


@dataclass(frozen=True, slots=True)
class Rows:
    """The three tables, and how far samples were from their medians."""

    verify: tuple[VerifyRow, ...]
    draft: tuple[DraftRow, ...]
    prefill: tuple[PrefillRow, ...]
    noise: dict[str, float]


def assemble(
    samples: Mapping[Cell, Samples], isotonic: bool = True, graph_sizes: Sequence[int] = ()
) -> Rows:
    """Medians in milliseconds, with their median absolute deviations.

    Args:
        isotonic: pool neighbours where a step of more tokens came out cheaper.
        graph_sizes: totals of captured graphs; up to the last, a row stands at its graph's size.
    """
    steps = sorted(cell for cell in samples if isinstance(cell, StepCell))
    verify, spreads = [], {"verify": [], "draft": [], "prefill": []}
    for _, group in groupby(steps, lambda cell: (cell.batch, cell.prefix)):
        cells = _by_size(list(group), graph_sizes)
        middles = [middle(samples[cell].verify_s) for cell in cells.values()]
        ms = np.array([one for one, _ in middles])
        spreads["verify"] += [noise / one for one, noise in middles]
        if isotonic:
            ms = never_falling(ms, [len(samples[cell].verify_s) for cell in cells.values()])
        last = graph_sizes[-1] if graph_sizes else 0
        verify += [
            VerifyRow(cell.batch, cell.prefix, size, rounded(one), size <= last, noise)
            for (size, cell), one, (_, noise) in zip(cells.items(), ms, middles)
        ]
    draft = _drafts(steps, samples)
    prefill = tuple(
        PrefillRow(cell.tokens, *middle(samples[cell].prefill_s))
        for cell in sorted(cell for cell in samples if isinstance(cell, PrefillCell))
    )
    spreads["draft"] = [row.noise_ms / row.draft_ms for row in draft]
    spreads["prefill"] = [row.noise_ms / row.prefill_ms for row in prefill]
    return Rows(tuple(verify), draft, prefill, _summary(spreads))


def _by_size(cells: list[StepCell], graph_sizes: Sequence[int]) -> dict[int, StepCell]:
    """The cell of every row of one batch and prefix, by total.

    A step inside the graphs runs the next one, so the largest step that runs a graph is its row.
    """
    sizes = {}
    for cell in cells:
        graph = bisect_left(graph_sizes, cell.total)
        sizes[graph_sizes[graph] if graph < len(graph_sizes) else cell.total] = cell
    return sizes


def _drafts(steps: list[StepCell], samples: Mapping[Cell, Samples]) -> tuple[DraftRow, ...]:
    """Drafts do not know how much will be verified: all steps of a batch and prefix together."""
    rows = []
    for (batch, prefix), group in groupby(steps, lambda cell: (cell.batch, cell.prefix)):
        seconds = [one for cell in group for one in samples[cell].draft_s]
        if seconds:
            rows.append(DraftRow(batch, prefix, *middle(seconds)))
    return tuple(rows)


def middle(seconds: Sequence[float]) -> tuple[float, float]:
    """Median and median absolute deviation, in milliseconds."""
    ms = np.asarray(seconds) * 1e3
    median = np.median(ms)
    return rounded(median), rounded(np.median(np.abs(ms - median)))


def rounded(ms: float) -> float:
    """To the nanosecond, which no clock here resolves."""
    return round(float(ms), 6)


def never_falling(values: Sequence[float], weights: Sequence[float]) -> np.ndarray:
    """The nearest non-decreasing values (n,) by weighted squares: pool adjacent violators."""
    blocks: list[list[float]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        blocks.append([float(value), float(weight), 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, heavy, count = blocks.pop()
            low = blocks[-1]
            low[0] += (mean - low[0]) * heavy / (low[1] + heavy)
            low[1] += heavy
            low[2] += count
    return np.concatenate([np.full(int(count), mean) for mean, _, count in blocks])


def _summary(spreads: Mapping[str, list[float]]) -> dict[str, float]:
    """Relative deviations over the rows of each table: the middle and the worst."""
    found = {}
    for table, relative in spreads.items():
        if relative:
            found[f"{table}_median_relative_mad"] = round(float(np.median(relative)), 5)
            found[f"{table}_worst_relative_mad"] = round(float(np.max(relative)), 5)
    return found
