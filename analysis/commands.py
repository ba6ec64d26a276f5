"""What the commands of `python -m analysis` share: their names, and how they speak."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

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


class Parser(argparse.ArgumentParser):
    """Errors in one line, as everywhere."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {' '.join(message.split())}; see {self.prog} --help\n")


def say(written: Sequence[Path]) -> None:
    """A line on standard error about every figure or page that was written."""
    from analysis.figure_files import written as in_words

    for text in in_words(written):
        print(f"wrote {text}", file=sys.stderr)
