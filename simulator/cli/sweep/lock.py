"""One process at a time in a run's folder, and what killed ones left there.

The lock is a POSIX record lock: the system drops it with the process that holds it, however that
ends, no child process inherits it, and it holds between machines that share a disk over NFS.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: no locks; renaming still keeps files whole
    fcntl = None

INSIDE = ".hydra"  # where the lock lies, so that a folder that holds nothing else is empty
LOCK = ".lock"
MOST_TRIES = 1000  # as many processes may hold the folder one after another while we wait
_TEMPORARY = re.compile(r"\..+\.(\d+)\.tmp")  # .NAME.PID.tmp, as every writer of ours names them


class Busy(Exception):
    """Another process holds the folder."""


@contextmanager
def claimed(folder: Path, wait: bool = True) -> Iterator[bool]:
    """Hold `folder`, made where it is missing, until the end of the block.

    Yields whether a process was killed in it while it replaced another configuration's run. What
    killed processes left is cleared by then.

    Raises:
        Busy: another process holds it, and `wait` is false.
        OSError: the folder cannot be made.
    """
    lock = folder / INSIDE / LOCK
    held = _acquire(lock, wait)
    try:
        yield _cleared(folder) if held is not None else False
    finally:
        _release(lock, held)


def leftovers(folder: Path) -> list[Path]:
    """Temporary files and the lock of a process that is at work in `folder`, or was killed."""
    places = (folder, folder / INSIDE)
    found = [path for place in places for path in place.glob(".*.tmp") if _pid(path) is not None]
    lock = folder / INSIDE / LOCK
    return [*found, lock] if lock.exists() else found


def _pid(path: Path) -> int | None:
    """Of the process that wrote a temporary file of ours."""
    found = _TEMPORARY.fullmatch(path.name)
    return int(found[1]) if found else None


def _cleared(folder: Path) -> bool:
    """Remove what killed processes left; whether one of them was replacing a run.

    Temporary files of the configuration are written by who holds the folder alone, and now that is
    us; those of results also by who calls `run_job` itself.
    """
    torn = False
    for path in leftovers(folder):
        inside, pid = path.parent.name == INSIDE, _pid(path)
        if pid is not None and (inside or _is_gone(pid)):
            torn |= inside
            path.unlink(missing_ok=True)
    return torn


def _is_gone(pid: int) -> bool:
    """Whether nobody writes to that process's temporary files: we have not begun to."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return pid == os.getpid()


def _acquire(path: Path, wait: bool) -> int | None:
    """A descriptor of the locked file; None where the disk knows no locks."""
    for _ in range(MOST_TRIES):
        with suppress(FileNotFoundError):  # its folder went, as an empty one, in between
            path.parent.mkdir(parents=True, exist_ok=True)
            held = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                if not _locked(held, wait, path.parents[1]):
                    os.close(held)
                    return None
                if _is_same(held, path):
                    return held
            except BaseException:
                os.close(held)
                raise
            os.close(held)  # the one that held it has removed it
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))


def _locked(held: int, wait: bool, folder: Path) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        if not wait:
            raise Busy(folder) from None
        if sys.stderr.isatty():
            print(f"waiting for another process that is at work in {folder}", file=sys.stderr)
        fcntl.lockf(held, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def _is_same(held: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(held), os.stat(path))
    except FileNotFoundError:
        return False


def _release(path: Path, held: int | None) -> None:
    """Remove the lock while it is held: who waits for it sees that it is another file then."""
    with suppress(OSError):
        if held is None or _is_same(held, path):
            path.unlink()
        path.parent.rmdir()  # unless it holds the configuration
    if held is not None:
        os.close(held)
