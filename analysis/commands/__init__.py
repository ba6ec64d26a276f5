"""The commands of `python -m analysis`, one a file: their arguments, and what they print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NoReturn

BASELINE = "autoregressive"
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
MODULES = {name: f"analysis.commands.{name}" for name in NAMED} | {
    "": "analysis.commands.runs",
    "report": "analysis.report",
    "cost": "simulator.studies.host_terms",  # prices rounds as the simulator does
}


class Parser(argparse.ArgumentParser):
    """Errors in one line, as everywhere."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {' '.join(message.split())}; see {self.prog} --help\n")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """What `figures` and `report` take."""
    parser.add_argument(
        "inputs",
        metavar="RUNS",
        nargs="+",
        help="folders of runs, validations, calibrations; a profile's .csv; a recording",
    )
    add_baseline(parser)


def add_baseline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baseline",
        default=BASELINE,
        metavar="POLICY",
        help=f"over which ratios are, paired by recording, load and seed (default: {BASELINE})",
    )


def add_out(parser: argparse.ArgumentParser) -> None:
    """Where figures go."""
    parser.add_argument(
        "--out", type=Path, default=Path("figures"), help="folder for figures (default: figures)"
    )


def say(written: Sequence[Path]) -> None:
    """A line on standard error about every figure or page that was written.

    Files that differ in their ending alone stand together.
    """
    for stem, files in groupby(written, key=lambda path: path.with_suffix("")):
        endings = [path.suffix[1:] for path in files]
        ending = endings[0] if len(endings) == 1 else "{" + ",".join(endings) + "}"
        print(f"wrote {stem}.{ending}", file=sys.stderr)
