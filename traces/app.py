"""`python -m traces inspect FILE`, `... validate FILE...` and `... import FORMAT FILE...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from traces.common.errors import InputError
from traces.importers.command import add_import, run_import
from traces.importers.files import printable
from traces.recordings.catalog import find_recording, known_recordings
from traces.recordings.summary import describe, one_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 2 when any input is refused."""
    args = _parser().parse_args(argv)
    if args.command == "inspect":
        return _inspect(args.file)
    if args.command == "import":
        return _import(args)
    return _validate(args.files)


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
    validate = commands.add_parser("validate", help="check recordings, one line for each")
    validate.add_argument("files", metavar="FILE", nargs="+")
    add_import(commands)
    return parser


def _inspect(name: str) -> int:
    try:
        recording = find_recording(name)
    except InputError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 2
    print(describe(recording))
    lacks = recording.meta.get("lacks")  # of an imported one
    for text in lacks if isinstance(lacks, list) else ():
        print(f"lacks: {printable(str(text))}")
    return 0


def _import(args: argparse.Namespace) -> int:
    try:
        run_import(args)
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _validate(names: Sequence[str]) -> int:
    """Checks every file, also after a bad one."""
    status = 0
    for name in names:
        try:
            print(f"{name}: ok ({one_line(find_recording(name))})", flush=True)
        except InputError as error:
            print(f"error: {printable(str(error))}", file=sys.stderr)
            status = 2
    return status
