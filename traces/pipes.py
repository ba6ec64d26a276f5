"""Command lines whose reader may stop reading, as in ``| head``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def until_closed(main: Callable[[], int]) -> int:
    """`main()`'s exit status; 0 where the reader of our output has read enough and left."""
    try:
        status = main()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        silence_output()
        return 0


def silence_output() -> None:
    """Point stdout at nothing, so that no flush at exit meets the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
