"""Disks that cannot be written to: which errors are theirs, and one line about them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STATED = re.compile(r"\[[Ee]rrno (\d+)\]")  # of an error whose library gives it in words alone


def number(error: OSError) -> int | None:
    """Its errno, as libraries that write files in other languages hide it."""
    found = _STATED.findall(str(error))
    return error.errno if error.errno is not None else int(found[-1]) if found else None


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
    """Within the block, errors of the disk that name no file name `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or disk_line(error) is None:
            raise
        code = number(error)
        raise OSError(code, os.strerror(code), str(path)) from error
