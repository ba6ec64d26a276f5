"""`python -m analysis points RUNS --points FILE...`: predictions beside what others measured.

Points are those of `python -m traces import` (format specdec-points). A point stands beside every
run of the same load, and of the policy that was measured if the point says which.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas

from analysis.compare.comparison import compare
from analysis.compare.points import Beside, PointPair, beside
from analysis.read.runs import FILE_NAME, read_runs
from analysis.text.tables import number
from traces.common.errors import InputError
from traces.common.table import BLANK, FORMATS, Table
from traces.importers.points import PointsFile, read_points

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
    comparisons = compare(read_runs(args.run_dirs))
    found = beside(comparisons, files, _metrics(args.metric, files))
    _table(found).emit(args.format)
    if args.format == "csv":
        for note in found.notes:
            print(f"note: {note}", file=sys.stderr)
    return []


def _metrics(text: str | None, files: Sequence[PointsFile]) -> list[str] | None:
    if text is None:
        return None
    measured = {key for file in files for point in file.points for key in point.metrics}
    names = [name for name in text.split(",") if name]
    for name in names or [""]:
        if name not in measured:
            accepted = ", ".join(sorted(measured))
            raise InputError(f"--metric {name!r} was not measured; accepted: {accepted}")
    return names


def _table(found: Beside) -> Table:
    marked = any(pair.meaning.note for pair in found.pairs)
    return Table(
        _HEADINGS,
        [_cells(pair) for pair in found.pairs],
        [_record(pair) for pair in found.pairs],
        _COLUMNS,
        notes=[*(["* counted otherwise, see below"] if marked else []), *found.notes],
        align="lllllrrr",
        empty=_NOTHING,
        label="tab:points",
    )


def _record(pair: PointPair) -> dict:
    load, latency = pair.row["load"], pair.comparison.latency
    return {
        "point": pair.point.label,
        "file": pair.point.file,
        "recording": pair.comparison.trace["recording"],
        "latency_profile": latency["profile"],
        "latency_content_hash": latency.get("content_hash"),
        "setting": pair.comparison.differs,
        "policy": pair.row["label"],
        **load.record,
        "metric": pair.metric,
        "measured": pair.measured,
        "predicted": number(pair.predicted["mean"]),
        "predicted_ci95": number(pair.predicted["half"]),
        "seeds": " ".join(map(str, pair.row["seeds"])),
        "relative_error": pair.error,
        "note": pair.meaning.note,
    }


def _cells(pair: PointPair) -> list[str]:
    error = BLANK if pair.error is None else f"{pair.error:+.1%}"
    return [
        pair.point.label,
        pair.row["load"].title,
        pair.comparison.title,
        pair.row["label"],
        pair.metric,
        f"{pair.measured:.5g}",
        _predicted(pair.predicted),
        f"{error} *" if pair.meaning.note else error,
    ]


def _predicted(value: pandas.Series) -> str:
    if pandas.isna(value["mean"]):
        return BLANK
    mean, half = value["mean"], value["half"]
    return _plain(mean, mean, 5) + ("" if pandas.isna(half) else f" ±{_plain(half, mean, 2)}")


def _plain(number: float, scale: float, digits: int) -> str:
    """Without an exponent where it has fewer than seven figures; what rounding left is 0."""
    if abs(number) <= 1e-9 * max(1.0, abs(scale)):
        return "0"
    rounded = float(f"{number:.{digits}g}")
    return f"{rounded:g}" if 1e-4 <= abs(rounded) < 1e6 else f"{rounded:.{digits - 1}e}"
