"""`python -m analysis RUN_DIR...`: compare finished runs in a table and in figures.

`python -m analysis VALIDATION_DIR` sets the predictions of a validation against its live runs;
`python -m analysis reliability FILE...` draws how far calibrated probabilities are off;
`python -m analysis reach RUN_DIR... --bounds FILE` sets runs against hindsight bounds;
`python -m analysis paired RUN_A RUN_B` compares two policies by prompt;
`python -m analysis cost ROUNDS.csv --profile NAME` fits an engine's host terms to measured rounds;
`python -m analysis points RUNS --points FILE...` sets predictions beside what others measured;
`python -m analysis figures RUNS... --out DIR` draws every figure that the files allow;
`python -m analysis report RUNS... --out report.html` puts all of it into one page.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from analysis.compare import BASELINE, compare
from analysis.figure_files import written as named
from analysis.latex import print_latex
from analysis.metrics import choose_metrics
from analysis.summaries import FILE_NAME, read_summaries
from analysis.tables import print_csv, print_markdown, print_tables
from analysis.validation import FILE_NAME as VALIDATION
from analysis.validation import find_validation, read_validation
from analysis.validation_text import FORMATS as VALIDATION_FORMATS
from traces.errors import InputError
from traces.pipes import until_closed

FORMATS = {
    "table": print_tables,
    "markdown": print_markdown,
    "csv": print_csv,
    "latex": print_latex,
}
NAMED = {
    "figures": "Draw every figure that the files allow, as PNG, PDF and SVG with captions.",
    "report": "Write one self-contained HTML page: tables, figures, configurations, warnings.",
    "reliability": "Draw the reliability diagrams of calibrations, with captions.",
    "reach": "Share of the gain over plain decoding that hindsight bounds allow, per policy and "
    "concurrency: a table on stdout.",
    "paired": "Compare two policies that served the same requests: ratio and difference with 95 % "
    "intervals over prompts. RUN_A and RUN_B are finished runs, or folders of several that differ "
    "in the policy alone.",
    "cost": "Fit what an engine's rounds take beyond a latency profile, judge it on held-out "
    "rounds, and write it as a latency configuration.",
    "points": "Set runs beside imported measurements of the same load: measured, predicted and "
    "relative error, with what cannot be compared.",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; exit status 2 when any run is refused, and then nothing is written."""
    given = sys.argv[1:] if argv is None else list(argv)
    if given and given[0] in NAMED:
        return _named(given[0], given)
    args = _parser().parse_args(given)
    try:
        _run(args, shlex.join(["python", "-m", "analysis", *given]))
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _named(name: str, given: list[str]) -> int:
    """A command with a name: the module of that name says its arguments and runs it."""
    module = import_module(f"analysis.{name}")
    parser = _Parser(prog=f"python -m analysis {name}", description=NAMED[name])
    module.add_arguments(parser)
    args = parser.parse_args(given[1:])
    try:
        _say(module.run(args, shlex.join(["python", "-m", "analysis", *given])))
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _run(args: argparse.Namespace, command: str) -> None:
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
    _say(written)


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
    _say(written)


def _say(written: Sequence[Path]) -> None:
    for text in named(written):
        print(f"wrote {text}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """Errors in one line, as everywhere."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {' '.join(message.split())}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
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


if __name__ == "__main__":
    sys.exit(until_closed(main))
