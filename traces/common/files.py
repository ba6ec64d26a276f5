"""Disks that cannot be written to: which errors are theirs, and one line about them."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Of an error whose library gives it in words alone.
_STATED = re.compile(r"(?:\[[Ee]rrno |\(os error )(\d+)[\])]")
_TEMPORARY = re.compile(r"\..+\.\d+\.tmp")  # .NAME.PID.tmp, as every writer of ours names them


def number(error: Exception) -> int | None:
    """Its errno, as libraries that write files in other languages hide it."""
    found, own = _STATED.findall(str(error)), getattr(error, "errno", None)
    return own if own is not None else int(found[-1]) if found else None


def disk_line(error: OSError) -> str | None:
    """What to say about a file that could not be written or read; None for other errors."""
    code = number(error)
    if error.filename is None and code not in (*_FULL, errno.EIO, errno.EROFS):
        return None
    where = "" if error.filename is None else f"{error.filename}: "
    accepted = "a disk with room" if code in _FULL else "a usable path"
    reason = os.strerror(code) if code is not None else str(error)
    return " ".join(f"{where}{reason}; accepted: {accepted}".split())


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Within the block, errors of the disk that name no file, or a temporary one, name `path`."""
    try:
        yield
    except OSError as error:
        code, file = number(error), error.filename
        parts = Path(file).parts if isinstance(file, str | os.PathLike) else ()
        ours = file is None or any(map(_TEMPORARY.fullmatch, parts))  # known to the writer alone
        if code is None or disk_line(error) is None or not ours:
            raise
        raise OSError(code, os.strerror(code), str(path)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; renamed to it when the block ends well, else removed.

    Raises OSError naming `path` when the disk does not take it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with named(path):
            yield temporary
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # the disk's, which was said already
            temporary.unlink(missing_ok=True)


def cache_folder(kind: str) -> Path:
    """For `kind` (orders, recordings): below $SPECSIM_CACHE, ~/.cache/specsim, or where there is no
    home a temporary folder.
    """
    folder = os.environ.get("SPECSIM_CACHE")
    if folder:
        return Path(folder) / kind
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "specsim" / kind
    return Path(tempfile.gettempdir()) / "specsim" / kind


def below(name: str, *folders: Path) -> Path | None:
    """`name`, relative to the first folder, where it leads below one of them; None otherwise.

    Links are followed before it is judged. None also for what no path can be: a NUL, half a
    surrogate pair, a name too long, links in a circle.
    """
    try:
        found = (folders[0] / name).resolve()
        inside = any(found.is_relative_to(folder.resolve()) for folder in folders)
        found.exists()  # OSError for a name that is too long
    except (OSError, ValueError, RuntimeError):
        return None
    return folders[0] / name if inside else None


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
