"""`python -m analysis reliability FILE...`: what a drafter's probabilities come to, as diagrams.

Reads the files that the simulator's task `calibrate` writes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.commands import add_out
from analysis.figures.draw import Inputs, draw, write
from analysis.read.calibrations import ENDING, SPLITS, read_reliability
from traces.common.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("files", metavar="FILE", nargs="+", help=f"RECORDING{ENDING}")
    add_out(parser)
    note = "default: tuning, which nothing was fitted on, if there"
    parser.add_argument("--split", choices=SPLITS, help=note)


def run(args: argparse.Namespace, command: str) -> list[Path]:
    """Draw one figure per file, as PNG, PDF and SVG with its caption; returns what was written.

    Raises InputError, and writes nothing, for a file that holds no such measurements.
    """
    found = [read_reliability(Path(file), args.split) for file in args.files]
    names = [one.name for one in found]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise InputError(f"two files are of {name}; accepted: one for each recording")
    return write(draw(Inputs(calibrations=found), ["reliability"], strict=True), args.out, command)
