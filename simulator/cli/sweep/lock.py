"""One process at a time in a run's folder, and what killed ones left there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from simulator.results.files import SUMMARY

INSIDE = ".hydra"  # where the lock lies, so that a folder that holds nothing else is empty
LOCK = ".lock"
REPLACING = ".replacing"  # beside it while results of another configuration are replaced


class Busy(Exception):
    """Another process holds the folder."""


@contextmanager
def claimed(folder: Path, wait: bool = True) -> Iterator[None]:
    """Hold `folder`, made where it is missing, until the end of the block.

    What killed processes left is cleared by then: their temporary files, and a summary whose
    tables or configuration may be another run's.

    Raises:
        Busy: another process holds it, and `wait` is false.
        OSError: the folder cannot be made.
    """
    lock = _acquired(folder, wait)
    try:
        if is_torn(folder):
            (folder / SUMMARY).unlink(missing_ok=True)
            (folder / INSIDE / REPLACING).unlink()
        for path in folder.glob(".*.*.tmp"):  # .NAME.PID.tmp, as every writer of ours names them
            pid = path.name.split(".")[-2]
            if pid.isdecimal() and _is_gone(int(pid)):
                path.unlink(missing_ok=True)
        yield
    finally:
        with suppress(OSError):  # while it is held: who waits sees that it is another file then
            os.unlink(lock.lock_file)
        lock.release()
        with suppress(OSError):
            (folder / INSIDE).rmdir()  # unless it holds the configuration


def _acquired(folder: Path, wait: bool) -> FileLock:
    path = folder / INSIDE / LOCK
    timeout_s = 0
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            path.parent.mkdir(exist_ok=True)
            lock.acquire(timeout=timeout_s)
            return lock
        except (FileNotFoundError, FileExistsError):  # its folder went, as an empty one, meanwhile
            if path.parent.is_file():
                raise
        except Timeout:
            if not wait:
                raise Busy(folder) from None
            if sys.stderr.isatty():
                print(f"waiting for another process that is at work in {folder}", file=sys.stderr)
            timeout_s = -1


def is_torn(folder: Path) -> bool:
    """Whether a process is replacing the folder's run, or was killed at it."""
    return (folder / INSIDE / REPLACING).exists()


def _is_gone(pid: int) -> bool:
    """Whether nobody writes to that process's temporary files: we have not begun to."""
    try:
        os.kill(pid, 0)
        if pid == os.getpid():
            return True
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return state == "Z"  # killed, though nobody has asked yet how it ended
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # another user's, or no such files here
        return False
