"""Measured points beside the runs of their load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

import pandas

from analysis.compare.comparison import Comparison
from analysis.compare.loads import Load
from analysis.compare.settings import objective_words
from traces.importers.points import Point, PointsFile

GOODPUT = "request_goodput"
THROUGHPUTS = ("request_throughput", "output_throughput", "total_token_throughput", GOODPUT)
FULL_BATCH = "full batch"  # window of a closed loop, see the summaries
WITH_PREFILL = "queue and prefill"


@dataclass(frozen=True, slots=True)
class Meaning:
    """Where a run has the metric, and how it differs there; `comparable` admits an error.

    What is not `shown` is another quantity altogether.
    """

    key: str
    comparable: bool = True
    note: str = ""
    shown: bool = True


# By the name that the source uses. vLLM's benchmark and the summaries share theirs.
OTHER_COUNTS = {
    "accept_length": "SGLang's scheduler counts the bonus token and the root, over the server's "
    "life; a run's acceptance_length is 1 + accepted / drafts over its window",
    "acceptance_length_by_prompt": "a mean over prompts; a run's is pooled over rounds",
    "acceptance_length_over_positions": "a mean over all output positions; a run's is over the "
    "positions where its rounds start",
}


@dataclass(frozen=True, slots=True)
class PointPair:
    """One metric of one point, and what runs of one policy and setting predict."""

    point: Point
    comparison: Comparison
    row: pandas.Series  # of the comparison's
    metric: str
    meaning: Meaning
    predicted: pandas.Series  # an estimate; its mean is NaN where no run has the metric

    @property
    def measured(self) -> float:
        return self.point.metrics[self.metric]

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1; None where the two mean different things."""
        mean = self.predicted["mean"]
        if pandas.isna(mean) or not self.meaning.comparable or self.measured == 0:
            return None
        return mean / self.measured - 1


@dataclass(frozen=True, slots=True)
class Beside:
    """All pairs, and what is to be known about them."""

    pairs: tuple[PointPair, ...]
    notes: tuple[str, ...]


def beside(
    comparisons: Sequence[Comparison], files: Sequence[PointsFile], metrics: Sequence[str] | None
) -> Beside:
    """Every point beside the runs of its load; metrics: those wanted, None for all."""
    pairs, notes = [], []
    points = [point for file in files for point in file.points]
    for point in points:
        found = list(_rows(comparisons, point))
        notes += [] if found else [_alone(comparisons, point)]
        for comparison, row in found:
            run = _judged(comparison, row.name)
            for name in metrics or list(point.metrics):
                if name in point.metrics:
                    meaning = meaning_of(name, run, point)
                    predicted = comparison.estimates(meaning.key).loc[row.name]
                    pairs.append(PointPair(point, comparison, row, name, meaning, predicted))
    notes += [
        f"predicted alone: {one.title} at {load.title} has no measured point"
        for one in comparisons
        for load, _ in one.blocks
        if not any(same_load(point, load) for point in points)
    ]
    notes += _differences(pairs)
    notes += [f"{file.path} lacks: {text}" for file in files for text in file.lacks]
    shown = (pair for pair in pairs if pair.meaning.shown)
    return Beside(tuple(shown), tuple(dict.fromkeys(notes)))


def _rows(
    comparisons: Sequence[Comparison], point: Point
) -> Iterator[tuple[Comparison, pandas.Series]]:
    for comparison in comparisons:
        for _, row in comparison.rows.iterrows():
            named = point.policy in (None, row["policy"], row["label"])
            if named and same_load(point, row["load"]):
                yield comparison, row


def _judged(comparison: Comparison, row: int) -> Mapping[str, Any]:
    """The row's run that says what goodput asks for, if one does."""
    runs = list(comparison.runs.loc[comparison.runs["row"] == row, "data"])
    return next((data for data in runs if data.get("goodput")), runs[0])


def same_load(point: Point, load: Load) -> bool:
    """Whether a run's load is the point's; a rate's cap counts only where the point states one.

    A benchmark draws its gaps: its load is not that of a file with arrivals of its own.
    """
    if point.closed:
        return load.closed and load.max_concurrency == point.max_concurrency
    if not point.open or load.closed or load.of_file:
        return False
    burstiness = 1.0 if point.burstiness is None else point.burstiness
    return (
        point.max_concurrency in (None, load.max_concurrency)
        and isclose(point.request_rate, load.request_rate, rel_tol=1e-9)
        and isclose(burstiness, load.burstiness, rel_tol=1e-9)
    )


def _alone(comparisons: Sequence[Comparison], point: Point) -> str:
    loads = {load for one in comparisons for load in one.rows["load"]}
    at_load = any(same_load(point, load) for load in loads)
    what = f"of policy {point.policy} " if at_load else ""
    if point.closed:
        where = f"concurrency {point.max_concurrency}"
    elif not point.open:
        where = "no load stated"
    else:
        burstiness = 1.0 if point.burstiness is None else point.burstiness
        most = point.max_concurrency
        cap = "" if most is None else f", at most {most} in flight"
        where = f"request rate {point.request_rate:g}/s, burstiness {burstiness:g}{cap}"
    return f"measured alone: {point.label} at {where} has no run {what}beside it"


def _differences(pairs: Sequence[PointPair]) -> list[str]:
    """Metrics that mean different things, or are in no summary; models that are not the same."""
    texts = [(pair.metric, pair.meaning.note) for pair in pairs if pair.meaning.note]
    texts += [
        (pair.metric, f"measured, but in no summary of {pair.row['label']}")
        for pair in pairs
        if pair.meaning.shown and pandas.isna(pair.predicted["mean"])
    ]
    names: dict[str, list[str]] = {}
    for metric, text in dict.fromkeys(texts):
        names.setdefault(text, []).append(metric)
    notes = [f"{', '.join(metrics)}: {text}" for text, metrics in names.items()]
    for pair in pairs:
        first, model = pair.comparison.first, pair.point.model
        theirs = first["latency"].get("model")
        if model and theirs and model != theirs:
            notes.append(f"{pair.point.label} measured {model}, the runs price steps of {theirs}")
        if first["what_if"]:
            notes.append(f"{pair.comparison.title} is a what-if: {pair.comparison.why_what_if}")
    return notes


def meaning_of(metric: str, run: Mapping[str, Any], point: Point) -> Meaning:
    """How `metric` of a point relates to the summary of `run`."""
    if metric == GOODPUT and (why := _other_objectives(run, point)):
        return Meaning(metric, False, why, shown=False)
    if metric in OTHER_COUNTS:
        return Meaning("acceptance_length", False, OTHER_COUNTS[metric])
    if metric in THROUGHPUTS and (run.get("window") or {}).get("kind") == FULL_BATCH:
        return Meaning(
            metric,
            note="a run counts the time in which its batch is full, a serving benchmark its whole "
            "duration, with ramp and drain",
        )
    if metric.endswith(("_ttft_ms", "_e2el_ms")) and run["ttft_note"] not in (None, WITH_PREFILL):
        why = f"a run's TTFT is {run['ttft_note']}: its latency profile has no prefill"
        return Meaning(metric, False, why)
    return Meaning(metric)


def _other_objectives(run: Mapping[str, Any], point: Point) -> str:
    """Why goodputs are of different questions; empty where their objectives are the same."""
    asked, ours = point.objectives, run.get("goodput")
    if asked is None:
        return "left out: the objectives of the measurement are not known"
    if not ours:
        return "left out: the runs have no objectives"
    if asked != {name: value for name, value in ours.items() if value is not None}:
        said = f"{objective_words(asked)}, of the runs {objective_words(ours)}"
        return f"left out: the objectives of the measurement are {said}"
    return ""
