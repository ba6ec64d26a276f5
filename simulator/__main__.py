"""`python -m simulator`: see `simulator.cli.main`."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """`main` of `simulator.cli.main`, which is imported here so that ^C is heard while it loads."""
    from simulator.cli.main import main

    return main(argv)


if __name__ == "__main__":
    from traces.common.files import until_closed

    sys.exit(until_closed(main))
