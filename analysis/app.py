"""`python -m analysis RUN_DIR...`: tables and figures of runs, or of one validation."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from analysis.commands import NAMED, Parser, say
from analysis.compare import BASELINE, compare
from analysis.latex import print_latex
from analysis.metrics import choose_metrics
from analysis.summaries import FILE_NAME, read_summaries
from analysis.tables import print_csv, print_markdown, print_tables
from analysis.validation import FILE_NAME as VALIDATION
from analysis.validation import find_validation, read_validation
from analysis.validation_text import FORMATS as VALIDATION_FORMATS
from traces.common.errors import InputError

FORMATS = {
    "table": print_tables,
    "markdown": print_markdown,
    "csv": print_csv,
    "latex": print_latex,
}


def run(given: Sequence[str], command: str) -> None:
    """Print and draw; InputError for what is refused, and then nothing is written."""
    args = _parser().parse_args(given)
    path = find_validation(args.run_dirs)
    if path is None:
        _compare_runs(args, command)
    else:
        _show_validation(args, path, command)


def _show_validation(args: argparse.Namespace, path: Path, command: str) -> None:
    if args.metric:
        raise InputError(f"--metric {args.metric[0]} is of runs, but {path} is a validation")
    if args.format not in VALIDATION_FORMATS:
        accepted = ", ".join(VALIDATION_FORMATS)
        raise InputError(f"--format {args.format} of a validation; accepted: {accepted}")
    validation = read_validation(path)
    written: list[Path] = []
    if args.figures:
        from analysis.validation_plots import draw_validation

        written = draw_validation(validation, args.out, command)
    VALIDATION_FORMATS[args.format](validation)
    say(written)


def _compare_runs(args: argparse.Namespace, command: str) -> None:
    summaries = read_summaries(args.run_dirs)
    comparisons = compare(summaries, args.baseline)
    names = [name for text in args.metric or () for name in text.split(",") if name]
    metrics = choose_metrics(names, summaries, args.baseline)
    written: list[Path] = []
    if args.figures:
        from analysis.figures import OF_RUNS, draw, write
        from analysis.inputs import Inputs

        inputs = Inputs(tuple(summaries), comparisons=tuple(comparisons))
        drawn = draw(inputs, OF_RUNS, strict=False, say=lambda _: None)
        written = write(drawn, args.out, command)
    FORMATS[args.format](comparisons, metrics)
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
        help=f"every {FILE_NAME} below it is read; or one folder with a {VALIDATION}, or that file",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("figures"), help="folder for figures (default: figures)"
    )
    parser.add_argument("--format", choices=list(FORMATS), default="table")
    parser.add_argument(
        "--baseline",
        default=BASELINE,
        metavar="POLICY",
        help=f"over which ratios are, paired by recording, load and seed (default: {BASELINE})",
    )
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
