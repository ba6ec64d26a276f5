"""`python -m real_runner`: see `real_runner.app`."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """`main` of `real_runner.app`, which is imported here so that ^C is heard while it loads."""
    from real_runner.app import main

    return main(argv)


if __name__ == "__main__":
    from traces.common.files import until_closed

    sys.exit(until_closed(main))
