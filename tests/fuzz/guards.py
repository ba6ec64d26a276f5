"""Limits of one case: seconds of computing, and memory of the process."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOST_S = 5.0
MOST_BYTES = 2 << 30


class Hang(BaseException):
    """A case took too long; no `except Exception` swallows it."""


@contextmanager
def alarm(seconds: float = MOST_S) -> Iterator[None]:
    """Raise Hang in the block once it has computed for `seconds`; of the main thread alone.

    Others may use the machine: what counts is this process's time. One that waits, for whatever,
    is left to who started it.
    """

    def ring(number: int, frame: object) -> None:
        raise Hang(f"{seconds:g} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """With `folder` as the working one."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def limit_memory(most: int = MOST_BYTES) -> None:
    """Let this process hold no more than `most` bytes of data; reserved code does not count."""
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def peak_bytes() -> int:
    """The most memory this process had at a time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
