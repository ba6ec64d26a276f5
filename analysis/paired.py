"""`python -m analysis paired RUN_A RUN_B`: how much faster one policy is, with its interval.

Both served the same prompts in the same order, so prompts are resampled for both at once (see
`traces.common.intervals`). The interval says what other prompts of the same kind would have given.
"""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path

from analysis.paired_match import match_runs, setting_of
from analysis.paired_rows import compare_pairs
from analysis.paired_runs import THROUGHPUT, TIMES
from analysis.paired_text import FORMATS
from traces.common.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("a", metavar="RUN_A", type=Path, help="folder of a run, or of several")
    parser.add_argument("b", metavar="RUN_B", type=Path, help="the same with another policy")
    parser.add_argument("--metric", choices=(THROUGHPUT, *TIMES), default=THROUGHPUT)
    parser.add_argument("--resamples", type=int, default=10_000, help="of prompts (default: 10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the resamples (default: 0)")
    parser.add_argument("--format", choices=list(FORMATS), default="table")


def run(args: argparse.Namespace, command: str) -> list[Path]:
    """Print the comparison; writes no file.

    Raises:
        InputError: runs that differ in more than the policy, or a metric they do not have.
    """
    if args.resamples < 100 or args.seed < 0:
        name, least = ("resamples", 100) if args.resamples < 100 else ("seed", 0)
        raise InputError(f"--{name} is {getattr(args, name)}; accepted: at least {least}")
    groups = match_runs(args.a, args.b)
    rows = [
        row
        for _, members in groupby(groups, key=setting_of)
        for row in compare_pairs(list(members), args.metric, args.resamples, args.seed)
    ]
    FORMATS[args.format](rows, args.metric, args.resamples, args.seed)
    return []
