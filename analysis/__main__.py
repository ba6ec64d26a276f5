"""`python -m analysis RUN_DIR...`: compare finished runs in a table and in figures.

`python -m analysis VALIDATION_DIR` sets the predictions of a validation against its live runs. The
other commands, such as `python -m analysis report RUNS...`, are listed in `analysis.commands`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from importlib import import_module

from traces.common.errors import InputError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; exit status 2 when any run is refused, and then nothing is written.

    What it needs is imported here, so that ^C is heard while it loads.
    """
    from analysis.commands import MODULES, NAMED, Parser, say

    given = sys.argv[1:] if argv is None else list(argv)
    command = shlex.join(["python", "-m", "analysis", *given])
    name = given[0] if given and given[0] in NAMED else ""
    module = import_module(MODULES[name])
    prog = f"python -m analysis {name}".strip()
    parser = Parser(prog=prog, description=NAMED.get(name, ""))
    module.add_arguments(parser)
    try:
        say(module.run(parser.parse_args(given[bool(name) :]), command))
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    from traces.common.files import until_closed

    sys.exit(until_closed(main))
