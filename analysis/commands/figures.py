"""`python -m analysis figures RUNS... --out DIR`: every figure that the given files allow."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.commands import add_inputs, add_out
from analysis.figures.draw import KINDS, chosen, draw, read_inputs, write
from traces.common.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_inputs(parser)
    add_out(parser)
    listed = "; ".join(f"{name}: {title}" for name, (*_, title) in KINDS.items())
    parser.add_argument("--only", metavar="NAME[,NAME...]", action="append", help=listed)


def run(args: argparse.Namespace, command: str) -> list[Path]:
    """Draw and write; returns what was written.

    Raises:
        InputError: an input or a name that is not accepted, a figure of ``--only`` that cannot be
            drawn, or an ``--out`` that cannot be written to; then nothing is written.
    """
    names = chosen(args.only)
    drawn = draw(read_inputs(args.inputs, args.baseline), names, strict=bool(args.only))
    if not drawn:
        raise InputError("no figure can be drawn of these files")
    return write(drawn, args.out, command)
