"""`python -m traces inspect FILE`, `... validate FILE...` and `... import FORMAT FILE...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from traces.common.errors import InputError
from traces.common.files import disk_line
from traces.importers import (
    accepted_list,
    cast_probe,
    cast_rounds,
    treespark_cost,
    treespark_traces,
    vllm_result,
)
from traces.importers.files import printable
from traces.recordings.catalog import find_recording, known_recordings
from traces.recordings.summary import describe, one_line

FORMATS = {
    "cast-rounds": cast_rounds,
    "cast-probe": cast_probe,
    "treespark-cost": treespark_cost,
    "treespark-traces": treespark_traces,
    "accepted-list": accepted_list,
    "vllm-result": vllm_result,
}
_OUT = {"cast-rounds": ".safetensors", "cast-probe": ".csv", "treespark-cost": ".csv"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 2 when any input is refused, or a disk does not write."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except InputError as error:
        line = printable(str(error))
    except OSError as error:
        line = disk_line(error)
        if line is None:
            raise
    print(f"error: {line}", file=sys.stderr)
    return 2


class _Parser(argparse.ArgumentParser):
    """Errors in one line, as everywhere."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {' '.join(message.split())}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    shipped = ", ".join(known_recordings()) or "none"
    parser = _Parser(
        prog="python -m traces",
        description="Look at, check and import recordings.",
        epilog=f"FILE is a .safetensors file, a .json manifest, or a shipped name: {shipped}",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    inspect = commands.add_parser("inspect", help="say what a recording holds")
    inspect.add_argument("file", metavar="FILE")
    inspect.set_defaults(run=_inspect)
    validate = commands.add_parser("validate", help="check recordings, one line for each")
    validate.add_argument("files", metavar="FILE", nargs="+")
    validate.set_defaults(run=_validate)
    importing = commands.add_parser(
        "import",
        help="turn a file of another program into one of this project's",
        description="Turn files of other programs into recordings, latency profiles or measured "
        "points. What the source lacks is printed and goes with the result.",
    )
    formats = importing.add_subparsers(dest="format", metavar="FORMAT", required=True)
    for name, module in FORMATS.items():
        own = formats.add_parser(name, help=module.HELP, description=module.__doc__)
        own.add_argument("files", metavar="FILE", nargs="+", type=Path)
        ending = _OUT.get(name, ".json")
        own.add_argument("--out", required=True, type=Path, help=f"path that ends in {ending}")
        module.add_arguments(own)
        own.set_defaults(run=_import)
    return parser


def _inspect(args: argparse.Namespace) -> int:
    recording = find_recording(args.file)
    print(describe(recording))
    lacks = recording.meta.get("lacks")  # of an imported one
    for text in lacks if isinstance(lacks, list) else ():
        print(f"lacks: {printable(str(text))}")
    return 0


def _validate(args: argparse.Namespace) -> int:
    """Checks every file, also after a bad one."""
    status = 0
    for name in args.files:
        try:
            print(f"{name}: ok ({one_line(find_recording(name))})", flush=True)
        except InputError as error:
            print(f"error: {printable(str(error))}", file=sys.stderr)
            status = 2
    return status


def _import(args: argparse.Namespace) -> int:
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
