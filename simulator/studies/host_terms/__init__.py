"""`python -m analysis cost ROUNDS.csv --profile NAME`: what rounds take beyond a profile.

Measured rounds, one a line, leave host terms over when the profile's draft and verify are taken
out. They are fitted on a part of the rounds and judged on the rest, and written as a latency
configuration (`latency=FILE.yaml`).

Elsewhere the analysis neither simulates nor fits, and imports nothing of the simulator. Here the
price of a round and the fit of its terms are the simulator's own (`simulator.cost`), because a
second pricing of the same profile could differ from the one it is judged for. So this command, and
it alone, imports that package, when it runs.
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
    """HostFit, print and, with --out, write.

    Raises:
        InputError: a bad file, profile or option.
    """
    from simulator.studies.host_terms.fit import fit_rounds
    from simulator.studies.host_terms.report import print_fit, write_latency
    from simulator.studies.host_terms.rounds import read_rounds

    if not 0 < args.hold_out < 1:
        raise InputError(f"--hold-out is {args.hold_out:g}; accepted: above 0, below 1")
    if args.seed < 0:
        raise InputError(f"--seed is {args.seed}; accepted: at least 0")
    if args.context is not None and not 0 < args.context < 1e12:
        raise InputError(f"--context is {args.context:g}; accepted: tokens above 0")
    if args.out is not None and args.out.suffix != ".yaml":
        raise InputError(f"--out is {args.out}; accepted: a path that ends in .yaml")
    rounds = read_rounds(args.rounds)
    found = fit_rounds(
        rounds, args.profile, args.packing, args.context, hold_out=args.hold_out, seed=args.seed
    )
    print_fit(found)
    return [] if args.out is None else [write_latency(args.out, found)]
