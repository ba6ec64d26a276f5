"""Measured points beside the runs of their load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isclose

from analysis.compare import Block, Comparison, Load, Row
from analysis.intervals import Estimate
from analysis.notes import setting_title
from analysis.points_meaning import Meaning, meaning_of
from analysis.settings import objectives
from analysis.summaries import Summary
from traces.importers.points import Point, PointsFile


@dataclass(frozen=True, slots=True)
class Pair:
    """One metric of one point, and what runs of one policy and setting predict."""

    point: Point
    comparison: Comparison
    load: Load
    row: Row
    metric: str
    meaning: Meaning

    @property
    def measured(self) -> float:
        return self.point.metrics[self.metric]

    @property
    def predicted(self) -> Estimate | None:
        return self.row.estimate(self.meaning.key)

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1; None where the two mean different things."""
        predicted = self.predicted
        if predicted is None or not self.meaning.comparable or self.measured == 0:
            return None
        return predicted.mean / self.measured - 1


@dataclass(frozen=True, slots=True)
class Beside:
    """All pairs, and what is to be known about them."""

    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]


def beside(
    comparisons: Sequence[Comparison], files: Sequence[PointsFile], metrics: Sequence[str] | None
) -> Beside:
    """Every point beside the runs of its load; metrics: those wanted, None for all."""
    pairs, notes = [], []
    points = [point for file in files for point in file.points]
    for point in points:
        found = list(_rows(comparisons, point))
        notes += _unmatched(comparisons, point, found)
        for comparison, load, row in found:
            wanted = metrics or list(point.metrics)
            run = _judged(row)
            pairs += [
                Pair(point, comparison, load, row, name, meaning_of(name, run, point))
                for name in wanted
                if name in point.metrics
            ]
    notes += _runs_alone(comparisons, points)
    notes += _differences(pairs)
    notes += [f"{file.path} lacks: {text}" for file in files for text in file.lacks]
    shown = (pair for pair in pairs if pair.meaning.shown)
    return Beside(tuple(shown), tuple(dict.fromkeys(notes)))


def _judged(row: Row) -> Summary:
    """The row's run that says what goodput asks for, if one does."""
    return next((run for run in row.runs if objectives(run)), row.runs[0])


def same_load(point: Point, load: Load) -> bool:
    """Whether a run's load is the point's; a rate's cap counts only where the point states one.

    A benchmark draws its gaps: its load is not that of a file with arrivals of its own.
    """
    if point.closed:
        return load.closed and load.max_concurrency == point.max_concurrency
    if not point.open or load.closed or load.of_file:
        return False
    cap = point.max_concurrency in (None, load.max_concurrency)
    burstiness = 1.0 if point.burstiness is None else point.burstiness
    return (
        cap
        and isclose(point.request_rate, load.request_rate, rel_tol=1e-9)
        and isclose(burstiness, load.burstiness, rel_tol=1e-9)
    )


def load_title(point: Point) -> str:
    """The point's load in words."""
    if point.closed:
        return f"concurrency {point.max_concurrency}"
    if not point.open:
        return "no load stated"
    burstiness = 1.0 if point.burstiness is None else point.burstiness
    cap = "" if point.max_concurrency is None else f", at most {point.max_concurrency} in flight"
    return f"request rate {point.request_rate:g}/s, burstiness {burstiness:g}{cap}"


def _blocks(comparisons: Sequence[Comparison]) -> Iterator[tuple[Comparison, Block]]:
    for comparison in comparisons:
        for block in comparison.blocks:
            yield comparison, block


def _rows(
    comparisons: Sequence[Comparison], point: Point
) -> Iterator[tuple[Comparison, Load, Row]]:
    for comparison, block in _blocks(comparisons):
        if same_load(point, block.load):
            for row in block.rows:
                if point.policy in (None, row.policy, row.label):
                    yield comparison, block.load, row


def _unmatched(comparisons: Sequence[Comparison], point: Point, found: list) -> list[str]:
    if found:
        return []
    at_load = any(same_load(point, block.load) for _, block in _blocks(comparisons))
    what = f"of policy {point.policy} " if at_load else ""
    return [f"measured alone: {point.label} at {load_title(point)} has no run {what}beside it"]


def _runs_alone(comparisons: Sequence[Comparison], points: Sequence[Point]) -> list[str]:
    alone = [
        f"{setting_title(comparison)} at {block.load.title}"
        for comparison, block in _blocks(comparisons)
        if not any(same_load(point, block.load) for point in points)
    ]
    return [f"predicted alone: {text} has no measured point" for text in alone]


def _differences(pairs: Sequence[Pair]) -> list[str]:
    """Metrics that mean different things, or are in no summary; models that are not the same."""
    texts = [(pair.metric, pair.meaning.note) for pair in pairs if pair.meaning.note]
    absent = "measured, but in no summary of {0}"
    shown = [pair for pair in pairs if pair.meaning.shown]
    texts += [(p.metric, absent.format(p.row.label)) for p in shown if p.predicted is None]
    names: dict[str, list[str]] = {}
    for metric, text in dict.fromkeys(texts):
        names.setdefault(text, []).append(metric)
    notes = [f"{', '.join(metrics)}: {text}" for text, metrics in names.items()]
    for pair in pairs:
        run, model = pair.row.runs[0], pair.point.model
        theirs = run.data["latency"].get("model")
        if model and theirs and model != theirs:
            notes.append(f"{pair.point.label} measured {model}, the runs price steps of {theirs}")
        if run.data["what_if"]:
            reason = run.data.get("what_if_reason") or "recording and latency differ in model"
            notes.append(f"{setting_title(pair.comparison)} is a what-if: {reason}")
    return notes
