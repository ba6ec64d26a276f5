"""`python -m analysis points RUNS --points FILE...`: predictions beside what others measured.

Points are those of `python -m traces import` (format specdec-points). A point stands beside every
run of the same load, and of the policy that was measured if the point says which.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

import pandas

from analysis.compare.comparison import Comparison, compare
from analysis.compare.loads import Load
from analysis.compare.settings import objective_words
from analysis.read.runs import FILE_NAME, read_runs
from analysis.text.tables import number
from traces.common.errors import InputError
from traces.common.table import BLANK, FORMATS, Table
from traces.importers.points import Point, PointsFile, read_points

GOODPUT = "request_goodput"
THROUGHPUTS = ("request_throughput", "output_throughput", "total_token_throughput", GOODPUT)
# By the name that the source uses. vLLM's benchmark and the summaries share theirs.
OTHER_COUNTS = {
    "accept_length": "SGLang's scheduler counts the bonus token and the root, over the server's "
    "life; a run's acceptance_length is 1 + accepted / drafts over its window",
    "acceptance_length_by_prompt": "a mean over prompts; a run's is pooled over rounds",
    "acceptance_length_over_positions": "a mean over all output positions; a run's is over the "
    "positions where its rounds start",
}
_HEADINGS = ("point", "load", "runs", "policy", "metric", "measured", "predicted", "error")
_COLUMNS = (
    *("point", "file", "recording", "latency_profile", "latency_content_hash", "setting"),
    *("policy", "max_concurrency", "request_rate", "burstiness", "metric", "measured"),
    *("predicted", "predicted_ci95", "seeds", "relative_error", "note"),
)
_NOTHING = "no measured point has the load and policy of a run, or a metric of the same meaning"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "run_dirs", metavar="RUNS", nargs="+", help=f"folders; every {FILE_NAME} below them is read"
    )
    parser.add_argument("--points", metavar="FILE", nargs="+", required=True, type=Path)
    parser.add_argument("--metric", metavar="KEY[,KEY...]", help="default: all that were measured")
    parser.add_argument("--format", choices=FORMATS, default="table")


def run(args: argparse.Namespace, _command: str = "") -> list[Path]:
    """Print the comparison; writes no file. Notes of CSV go to standard error.

    Raises:
        InputError: a bad run or file of points, or a metric that no point has.
    """
    files = [read_points(path) for path in args.points]
    comparisons, names = compare(read_runs(args.run_dirs)), None
    if args.metric is not None:
        measured = {key for file in files for point in file.points for key in point.metrics}
        names = [name for name in args.metric.split(",") if name]
        for name in names or [""]:
            if name not in measured:
                accepted = ", ".join(sorted(measured))
                raise InputError(f"--metric {name!r} was not measured; accepted: {accepted}")
    pairs, notes = beside(comparisons, files, names)
    marked = ["* counted otherwise, see below"] if any(one.meaning.note for one in pairs) else []
    table = Table(
        _HEADINGS,
        [_cells(pair) for pair in pairs],
        [_record(pair) for pair in pairs],
        _COLUMNS,
        notes=[*marked, *notes],
        align="lllllrrr",
        empty=_NOTHING,
        label="tab:points",
    )
    table.emit(args.format)
    if args.format == "csv":
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
    return []


# ---------------------------------------------------------------- points beside runs


@dataclass(frozen=True, slots=True)
class Meaning:
    """Where a run has the metric, and how it differs there; `comparable` admits an error.

    What is not `shown` is another quantity altogether.
    """

    key: str
    comparable: bool = True
    note: str = ""
    shown: bool = True


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


def beside(
    comparisons: Sequence[Comparison], files: Sequence[PointsFile], metrics: Sequence[str] | None
) -> tuple[list[PointPair], list[str]]:
    """Every point beside the runs of its load, and what is to be known about the pairs.

    metrics: those wanted, None for all.
    """
    pairs, notes = [], []
    points = [point for file in files for point in file.points]
    for point in points:
        found = [
            (comparison, row)
            for comparison in comparisons
            for _, row in comparison.rows.iterrows()
            if point.policy in (None, row["policy"], row["label"]) and same_load(point, row["load"])
        ]
        notes += [] if found else [_alone(comparisons, point)]
        for comparison, row in found:
            # The row's run that says what goodput asks for, if one does.
            runs = list(comparison.runs.loc[comparison.runs["row"] == row.name, "data"])
            judged = next((data for data in runs if data.get("goodput")), runs[0])
            for name in metrics or list(point.metrics):
                if name in point.metrics:
                    meaning = _meaning(name, judged, point)
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
    return [pair for pair in pairs if pair.meaning.shown], list(dict.fromkeys(notes))


def same_load(point: Point, load: Load) -> bool:
    """Whether a run's load is the point's; a rate's cap counts only where the point states one.

    A benchmark draws its gaps: its load is not that of a file with arrivals of its own.
    """
    if point.closed:
        return load.closed and load.max_concurrency == point.max_concurrency
    if not point.open or load.closed or load.of_file:
        return False
    return (
        point.max_concurrency in (None, load.max_concurrency)
        and isclose(point.request_rate, load.request_rate, rel_tol=1e-9)
        and isclose(_burstiness(point), load.burstiness, rel_tol=1e-9)
    )


def _burstiness(point: Point) -> float:
    return 1.0 if point.burstiness is None else point.burstiness


def _alone(comparisons: Sequence[Comparison], point: Point) -> str:
    loads = {load for one in comparisons for load in one.rows["load"]}
    at_load = any(same_load(point, load) for load in loads)
    what = f"of policy {point.policy} " if at_load else ""
    most = point.max_concurrency
    if point.closed:
        where = f"concurrency {most}"
    elif not point.open:
        where = "no load stated"
    else:
        cap = "" if most is None else f", at most {most} in flight"
        where = f"request rate {point.request_rate:g}/s, burstiness {_burstiness(point):g}{cap}"
    return f"measured alone: {point.label} at {where} has no run {what}beside it"


def _differences(pairs: Sequence[PointPair]) -> Iterator[str]:
    """Metrics that mean different things, or are in no summary; models that are not the same."""
    texts = [(pair.meaning.note, pair.metric) for pair in pairs if pair.meaning.note]
    texts += [
        (f"measured, but in no summary of {pair.row['label']}", pair.metric)
        for pair in pairs
        if pair.meaning.shown and pandas.isna(pair.predicted["mean"])
    ]
    names: dict[str, dict[str, None]] = {}
    for text, metric in texts:
        names.setdefault(text, {})[metric] = None
    yield from (f"{', '.join(metrics)}: {text}" for text, metrics in names.items())
    for pair in pairs:
        first, model = pair.comparison.first, pair.point.model
        theirs = first["latency"].get("model")
        if model and theirs and model != theirs:
            yield f"{pair.point.label} measured {model}, the runs price steps of {theirs}"
        if first["what_if"]:
            yield f"{pair.comparison.title} is a what-if: {pair.comparison.why_what_if}"


def _meaning(metric: str, run: Mapping[str, Any], point: Point) -> Meaning:
    """How `metric` of a point relates to the summary of `run`."""
    asked, ours = point.objectives, run.get("goodput")
    if metric == GOODPUT and asked is None:
        why = "left out: the objectives of the measurement are not known"
        return Meaning(metric, False, why, shown=False)
    if metric == GOODPUT and not ours:
        return Meaning(metric, False, "left out: the runs have no objectives", shown=False)
    if metric == GOODPUT and asked != {k: v for k, v in ours.items() if v is not None}:
        said = f"{objective_words(asked)}, of the runs {objective_words(ours)}"
        why = f"left out: the objectives of the measurement are {said}"
        return Meaning(metric, False, why, shown=False)
    if metric in OTHER_COUNTS:
        return Meaning("acceptance_length", False, OTHER_COUNTS[metric])
    if metric in THROUGHPUTS and (run.get("window") or {}).get("kind") == "full batch":
        return Meaning(
            metric,
            note="a run counts the time in which its batch is full, a serving benchmark its whole "
            "duration, with ramp and drain",
        )
    told = run["ttft_note"]
    if metric.endswith(("_ttft_ms", "_e2el_ms")) and told not in (None, "queue and prefill"):
        return Meaning(metric, False, f"a run's TTFT is {told}: its latency profile has no prefill")
    return Meaning(metric)


# ---------------------------------------------------------------- the table


def _record(pair: PointPair) -> dict:
    latency = pair.comparison.latency
    return {
        "point": pair.point.label,
        "file": pair.point.file,
        "recording": pair.comparison.trace["recording"],
        "latency_profile": latency["profile"],
        "latency_content_hash": latency.get("content_hash"),
        "setting": pair.comparison.differs,
        "policy": pair.row["label"],
        **pair.row["load"].record,
        "metric": pair.metric,
        "measured": pair.measured,
        "predicted": number(pair.predicted["mean"]),
        "predicted_ci95": number(pair.predicted["half"]),
        "seeds": " ".join(map(str, pair.row["seeds"])),
        "relative_error": pair.error,
        "note": pair.meaning.note,
    }


def _cells(pair: PointPair) -> list[str]:
    mean, half = pair.predicted["mean"], pair.predicted["half"]
    predicted = BLANK if pandas.isna(mean) else _plain(mean, mean, 5)
    error = BLANK if pair.error is None else f"{pair.error:+.1%}"
    return [
        pair.point.label,
        pair.row["load"].title,
        pair.comparison.title,
        pair.row["label"],
        pair.metric,
        f"{pair.measured:.5g}",
        predicted if pandas.isna(half) else f"{predicted} ±{_plain(half, mean, 2)}",
        f"{error} *" if pair.meaning.note else error,
    ]


def _plain(number: float, scale: float, digits: int) -> str:
    """Without an exponent where it has fewer than seven figures; what rounding left is 0."""
    if abs(number) <= 1e-9 * max(1.0, abs(scale)):
        return "0"
    rounded = float(f"{number:.{digits}g}")
    return f"{rounded:g}" if 1e-4 <= abs(rounded) < 1e6 else f"{rounded:.{digits - 1}e}"
