"""`python -m analysis report RUNS... --out report.html`: everything about some runs in one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.commands import add_inputs
from analysis.figures.draw import KINDS
from traces.common.errors import InputError
from traces.common.files import replacing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_inputs(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="FILE.html",
        help="the page (default: report.html)",
    )
    parser.add_argument("--title", help="heading of the page")
    listed = f"figures: {', '.join(KINDS)}"
    parser.add_argument("--only", metavar="NAME[,NAME...]", action="append", help=listed)
    help_text = "columns of the tables"
    parser.add_argument("--metric", action="append", metavar="KEY[,KEY...]", help=help_text)


def run(args: argparse.Namespace, command: str) -> list[Path]:
    """Write the page; returns its path.

    Raises:
        InputError: an input, figure or metric that is not accepted, or a path that cannot be
            written to; then no file is touched.
    """
    from analysis.compare.metrics import choose_metrics
    from analysis.figures.draw import chosen, draw, read_inputs
    from analysis.report.page import ORDER, page

    if args.out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {args.out}; accepted: a file that ends in .html")
    inputs = read_inputs(args.inputs, args.baseline)
    names = chosen(args.only)
    if not (args.only or inputs.recordings):
        names.remove("prefix_mass")  # of others' recordings alone
    left_out: list[str] = []
    names = [name for name in ORDER if name in names]
    drawn = draw(inputs, names, strict=bool(args.only), say=left_out.append)
    metrics = choose_metrics(args.metric, inputs.runs, args.baseline)
    text = page(inputs, drawn, left_out, metrics, args.title, command)
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(args.out) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{args.out}: cannot write here ({error.strerror})") from error
    return [args.out]
