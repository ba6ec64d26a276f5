"""`python -m analysis cost ROUNDS.csv --profile NAME`: what rounds take beyond a profile.

Measured rounds, one a line, leave host terms over when the profile's draft and verify are taken
out. They are fitted on a part of the rounds and judged on the rest, and written as a latency
configuration (`latency=FILE.yaml`).

The price of a round and the fit of its terms are those of `simulator.cost`, so this is a study; the
analysis, which neither simulates nor fits, only finds it by name.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from traces.common.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "rounds",
        metavar="ROUNDS",
        type=Path,
        help="CSV with columns batch, width, round_ms, committed, and optionally draft_ms, "
        "context, tree, drafted, nodes, ordered, graph; or the folder of a run of task=serve",
    )
    parser.add_argument("--profile", required=True, help="a latency profile's name or .csv")
    parser.add_argument("--packing", choices=("ragged", "dense"), default="ragged")
    parser.add_argument(
        "--context",
        type=float,
        help="KV tokens before every root, where no column says (default: the profile's first)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE.yaml", help="latency configuration")
    parser.add_argument(
        "--hold-out", type=float, default=0.3, help="share of rounds that judge (default: 0.3)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of that share's draw (default: 0)")


def run(args: argparse.Namespace, _command: str = "") -> list[Path]:
    """Fit, print and, with --out, write.

    Raises:
        InputError: a bad file, profile or option.
    """
    from simulator.studies.host_terms.fit import fit_rounds
    from simulator.studies.host_terms.report import print_fit, write_latency
    from simulator.studies.host_terms.rounds import read_rounds

    for name, value, good, accepted in (
        ("--hold-out", args.hold_out, 0 < args.hold_out < 1, "above 0, below 1"),
        ("--seed", args.seed, args.seed >= 0, "at least 0"),
        (
            "--context",
            args.context,
            args.context is None or 0 < args.context < 1e12,
            "tokens above 0",
        ),
    ):
        if not good:
            raise InputError(f"{name} is {value:g}; accepted: {accepted}")
    if args.out is not None and args.out.suffix != ".yaml":
        raise InputError(f"--out is {args.out}; accepted: a path that ends in .yaml")
    found = fit_rounds(
        read_rounds(args.rounds),
        args.profile,
        args.packing,
        args.context,
        hold_out=args.hold_out,
        seed=args.seed,
    )
    print_fit(found)
    return [] if args.out is None else [write_latency(args.out, found)]
