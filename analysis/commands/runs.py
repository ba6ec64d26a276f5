"""`python -m analysis RUN_DIR...`: tables and figures of runs, or of one validation."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from analysis.commands import NAMED, Parser, add_baseline, add_out, say
from traces.common.errors import InputError
from traces.common.table import FORMATS, emit


def run(given: Sequence[str], command: str) -> None:
    """Print and draw; InputError for what is refused, and then nothing is written."""
    args = _parser().parse_args(given)
    from analysis.read.validations import find_validation  # pandas: not for --help

    path = find_validation(args.run_dirs)
    if path is None:
        _compare_runs(args, command)
    else:
        _show_validation(args, path, command)


def _show_validation(args: argparse.Namespace, path: Path, command: str) -> None:
    from analysis.read.validations import read_validation
    from analysis.text.validation import page

    if args.metric:
        raise InputError(f"--metric {args.metric[0]} is of runs, but {path} is a validation")
    validation = read_validation(path)
    written: list[Path] = []
    if args.figures:
        from analysis.figures.draw import write
        from analysis.figures.drawing import style
        from analysis.figures.live import validation_drawing

        with style():
            drawing = validation_drawing(validation)
        written = write([drawing], args.out, command)
    emit(page(validation), args.format)
    say(written)


def _compare_runs(args: argparse.Namespace, command: str) -> None:
    from analysis.compare.comparison import compare
    from analysis.compare.metrics import choose_metrics
    from analysis.read.runs import read_runs
    from analysis.text.tables import page

    runs = read_runs(args.run_dirs)
    comparisons = compare(runs, args.baseline)
    metrics = choose_metrics(args.metric, runs, args.baseline)
    written: list[Path] = []
    if args.figures:
        from analysis.figures.draw import OF_RUNS, draw, write
        from analysis.figures.parts import Inputs

        drawn = draw(Inputs(comparisons), OF_RUNS, strict=False, say=lambda _: None)
        written = write(drawn, args.out, command)
    emit(page(comparisons, metrics), args.format)
    say(written)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m analysis",
        description="Compare finished runs: a table on stdout, figures as PNG, PDF and SVG with "
        "captions. Runs of different recordings, latency profiles or server settings get blocks "
        "and figures of their own. A validation, alone: predicted against live.",
        epilog=f"Commands of their own (--help after them): {', '.join(NAMED)}.",
    )
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
    return parser
