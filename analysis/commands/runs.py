"""`python -m analysis RUN_DIR...`: tables and figures of runs, or of one validation."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.commands import NAMED, add_baseline, add_out
from traces.common.errors import InputError
from traces.common.table import FORMATS, emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command without a name."""
    parser.description = (
        "Compare finished runs: a table on stdout, figures as PNG, PDF and SVG with captions. Runs "
        "of different recordings, latency profiles or server settings get blocks and figures of "
        "their own. A validation, alone: predicted against live."
    )
    parser.epilog = f"Commands of their own (--help after them): {', '.join(NAMED)}."
    parser.add_argument(
        "run_dirs",
        metavar="RUN_DIR",
        nargs="+",
        help="every summary.json below it is read; or one folder with a validation.json, or that "
        "file",
    )
    add_out(parser)
    parser.add_argument("--format", choices=FORMATS, default="table")
    add_baseline(parser)
    parser.add_argument(
        "--no-figures", dest="figures", action="store_false", help="print the comparison only"
    )
    parser.add_argument(
        "--metric",
        action="append",
        metavar="KEY[,KEY...]",
        help="columns to show, any number in the summaries or speedup; may be repeated",
    )


def run(args: argparse.Namespace, command: str) -> list[Path]:
    """Draw and print; InputError for what is refused, and then nothing is written."""
    from analysis.compare.comparison import compare  # pandas: not for --help
    from analysis.compare.metrics import choose_metrics
    from analysis.read.runs import read_runs
    from analysis.read.validations import find_validation, read_validation
    from analysis.text import tables, validation

    path = find_validation(args.run_dirs)
    if path is None:
        runs = read_runs(args.run_dirs)
        comparisons, validations = compare(runs, args.baseline), []
        metrics = choose_metrics(args.metric, runs, args.baseline)
        parts, names = tables.page(comparisons, metrics), ("throughput", "acceptance")
    else:
        if args.metric:
            raise InputError(f"--metric {args.metric[0]} is of runs, but {path} is a validation")
        comparisons, validations = (), [read_validation(path)]
        parts, names = validation.page(validations[0]), ("live",)
    written: list[Path] = []
    if args.figures:
        from analysis.figures.draw import Inputs, draw, write

        drawn = draw(Inputs(comparisons, validations), names, strict=False, say=lambda _: None)
        written = write(drawn, args.out, command)
    emit(parts, args.format)
    return written
