"""`python -m analysis report RUNS... --out report.html`: everything about some runs in one page.

The page needs nothing beside itself: figures are inside it as SVG, nothing is fetched, and there is
no script in it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.compare import BASELINE
from analysis.figure_files import staged
from analysis.figures import KINDS, chosen, draw
from analysis.inputs import Inputs, read_inputs
from analysis.metrics import choose_metrics
from traces.common.errors import InputError

_ORDER = (
    "throughput", "pareto", "goodput", "domains", "budget", "acceptance", "nodes", "time",
    "latency", "prefix_mass", "reliability", "live",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "inputs",
        metavar="RUNS",
        nargs="+",
        help="folders of runs, validations, calibrations; a profile's .csv; a recording",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="FILE.html",
        help="the page (default: report.html)",
    )
    parser.add_argument("--title", help="heading of the page")
    parser.add_argument(
        "--only", metavar="NAME[,NAME...]", action="append", help=f"figures: {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--metric", action="append", metavar="KEY[,KEY...]", help="columns of the tables"
    )
    parser.add_argument(
        "--baseline", default=BASELINE, metavar="POLICY", help=f"of ratios (default: {BASELINE})"
    )


def run(args: argparse.Namespace, command: str) -> list[Path]:
    """Write the page; returns its path.

    Raises:
        InputError: an input, figure or metric that is not accepted, or a path that cannot be
            written to; then no file is touched.
    """
    if args.out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {args.out}; accepted: a file that ends in .html")
    inputs = read_inputs(args.inputs, args.baseline)
    return [write_report(inputs, args, command)]


def write_report(inputs: Inputs, args: argparse.Namespace, command: str) -> Path:
    """Draw, lay out and write."""
    from analysis.report_page import Content, page

    names = chosen(args.only)
    if not (args.only or inputs.recordings):
        names.remove("prefix_mass")  # of others' recordings alone
    names = [name for name in _ORDER if name in names]
    left_out: list[str] = []
    drawn = draw(inputs, names, strict=bool(args.only), say=left_out.append)
    wanted = [name for text in args.metric or () for name in text.split(",") if name]
    content = Content(
        inputs=inputs,
        drawn=drawn,
        left_out=left_out,
        metrics=choose_metrics(wanted, inputs.summaries, args.baseline),
        title=args.title,
        command=command,
    )
    text = page(content)
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with staged() as files:
            files.add(args.out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{args.out}: cannot write here ({error.strerror})") from error
    return args.out
