"""`python -m traces import FORMAT FILE... --out PATH`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from traces.importers import (
    accepted_list,
    cast_probe,
    cast_rounds,
    treespark_cost,
    treespark_traces,
    vllm_result,
)
from traces.importers.files import printable

FORMATS = {
    "cast-rounds": cast_rounds,
    "cast-probe": cast_probe,
    "treespark-cost": treespark_cost,
    "treespark-traces": treespark_traces,
    "accepted-list": accepted_list,
    "vllm-result": vllm_result,
}
_OUT = {"cast-rounds": ".safetensors", "cast-probe": ".csv", "treespark-cost": ".csv"}


def add_import(commands: argparse._SubParsersAction) -> None:
    """The command `import` with a parser for every format."""
    parser = commands.add_parser(
        "import",
        help="turn a file of another program into one of this project's",
        description="Turn files of other programs into recordings, latency profiles or measured "
        "points. What the source lacks is printed and goes with the result.",
    )
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    for name, module in FORMATS.items():
        own = formats.add_parser(name, help=module.HELP, description=module.__doc__)
        own.add_argument("files", metavar="FILE", nargs="+", type=Path)
        ending = _OUT.get(name, ".json")
        own.add_argument("--out", required=True, type=Path, help=f"path that ends in {ending}")
        module.add_arguments(own)
        own.set_defaults(run=run_import)


def run_import(args: argparse.Namespace) -> int:
    """Import and say what was read, what is lacking, what was written and what may be a mistake.

    Raises:
        InputError: bad input; nothing is written then.
    """
    report = FORMATS[args.format].run(args)
    for line in report.lines():
        print(printable(line))
    for line in report.warnings:
        print(f"warning: {printable(line)}", file=sys.stderr)
    return 0
