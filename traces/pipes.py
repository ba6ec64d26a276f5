"""How command lines end: when their reader has read enough, as in ``| head``, and by ^C."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

INTERRUPTED = 130  # 128 + SIGINT


def until_closed(main: Callable[[], int]) -> int:
    """`main()`'s exit status; 0 where the reader of our output has left, 130 after ^C."""
    try:
        status = main()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        silence_output()
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def silence_output() -> None:
    """Point stdout at nothing, so that no flush at exit meets the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
