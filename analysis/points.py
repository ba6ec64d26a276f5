"""`python -m analysis points RUNS --points FILE...`: predictions beside what others measured.

Points are those of `python -m traces import` (format specdec-points). A point stands beside every
run of the same load, and of the policy that was measured if the point says which.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from analysis.compare import compare
from analysis.points_match import beside
from analysis.points_text import FORMATS
from analysis.summaries import FILE_NAME, read_summaries
from traces.common.errors import InputError
from traces.importers.points import PointsFile, read_points


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "run_dirs",
        metavar="RUNS",
        nargs="+",
        help=f"folders; every {FILE_NAME} below them is read",
    )
    parser.add_argument("--points", metavar="FILE", nargs="+", required=True, type=Path)
    parser.add_argument("--metric", metavar="KEY[,KEY...]", help="default: all that were measured")
    parser.add_argument("--format", choices=list(FORMATS), default="table")


def run(args: argparse.Namespace, _command: str = "") -> list[Path]:
    """Print the comparison; writes no file.

    Raises:
        InputError: a bad run or file of points, or a metric that no point has.
    """
    files = [read_points(path) for path in args.points]
    comparisons = compare(read_summaries(args.run_dirs))
    FORMATS[args.format](beside(comparisons, files, _metrics(args.metric, files)))
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
