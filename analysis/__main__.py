"""`python -m analysis RUN_DIR...`: compare finished runs in a table and in figures.

`python -m analysis VALIDATION_DIR` sets the predictions of a validation against its live runs;
`python -m analysis reliability FILE...` draws how far calibrated probabilities are off;
`python -m analysis reach RUN_DIR... --bounds FILE` sets runs against hindsight bounds;
`python -m analysis paired RUN_A RUN_B` compares two policies by prompt;
`python -m analysis cost ROUNDS.csv --profile NAME` fits an engine's host terms to measured rounds;
`python -m analysis points RUNS --points FILE...` sets predictions beside what others measured;
`python -m analysis figures RUNS... --out DIR` draws every figure that the files allow;
`python -m analysis report RUNS... --out report.html` puts all of it into one page.
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
    name = given[0] if given else ""
    try:
        if name in NAMED:
            module = import_module(MODULES[name])
            parser = Parser(prog=f"python -m analysis {name}", description=NAMED[name])
            module.add_arguments(parser)
            say(module.run(parser.parse_args(given[1:]), command))
        else:
            from analysis.commands.runs import run

            run(given, command)
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    from traces.common.files import until_closed

    sys.exit(until_closed(main))
