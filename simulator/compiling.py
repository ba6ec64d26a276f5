"""numba, in one place: where compiled code is kept, and plain functions compiled when needed.

The price of a step and the choices of policies are plain functions over flat tables. Interpreted
they serve a short run at once; compiled they serve a long one fast. `compiled` makes the second
form out of the first, so that the two cannot differ.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
import tempfile
import types
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

# Interpreted work of a process, in items of about 4 us, from which numba is worth its loading,
# and its compiling.
WORTH, UNKEPT = 200_000, 2_500_000
PATIENCE = 4  # times as much are spent before a process compiles what another one may be at
_work: dict[tuple[str, ...], int] = defaultdict(int)
_found: set[tuple] = set()
sharers = 1  # processes that do work of the same kind, each told of its own part alone
# Nothing is allocated, so no references to arrays need counting.
FLAT = {"nogil": True, "error_model": "numpy", "_nrt": False}


def njit(function: Callable | None = None, **options: Any) -> Callable:
    """`numba.njit` that keeps compiled code: beside the source, else in the user's cache folder.

    Where neither can be written it is kept in a temporary folder of the user's own, or not at all.
    It is kept under the content of the function's folder: numba looks at one file's time alone, and
    stops at a kept signature whose class is gone.
    """
    import numba

    options.pop("cache", None)
    if function is None:
        return lambda function: njit(function, **options)
    function.__qualname__ += f"_{_digest(Path(function.__code__.co_filename).parent)}"
    try:
        return _one_form(numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no place to write: numba names none
        folder = _temporary_folder()
    if folder is not None:
        numba.config.CACHE_DIR = str(folder)
    return _one_form(numba.njit(cache=folder is not None, **options)(function))


def _one_form(function: Any) -> Any:
    """The same dispatcher, to which constants are values: else numba compiles for 0, 1 and n."""
    from numba.core.types import unliteral

    chosen = function.get_call_template

    def get_call_template(args, keywords):
        return chosen([unliteral(kind) for kind in args], keywords)

    function.get_call_template = get_call_template
    return function


@cache
def _digest(folder: Path) -> str:
    """Of the sources that lie in a folder."""
    texts = [file.read_bytes() for file in sorted(folder.glob("*.py"))]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def _temporary_folder() -> Path | None:
    """A folder that nobody else can write: what lies there is run."""
    folder = Path(tempfile.gettempdir()) / f"specsim-compiled-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return folder if own and not found.st_mode & 0o022 else None


def worth(items: int, entry: str, *names: str) -> bool:
    """Note so many items of interpreted work; whether compiled modules should take them instead.

    Loading them takes about as long as `WORTH` items: no process waits twice as long as need be.
    Compiling them, once on a machine, takes as long as `UNKEPT`: of several processes one does it,
    and the others go on as they are while that may help.

    entry: the function that will be called; "": any of the modules'.
    """
    _work[names] += items * sharers
    if _work[names] < WORTH:
        return False
    if kept(entry, *names):
        return True
    return _work[names] >= UNKEPT and (_work[names] >= PATIENCE * UNKEPT or _first())


def kept(entry: str, *names: str) -> bool:
    """Whether compiled code of these modules lies beside their sources."""
    if (entry, names) not in _found:
        files, digest = _files(names)
        pattern = f"*{entry}_{digest}_*.nbi"
        if not any(any((file.parent / "__pycache__").glob(pattern)) for file in files):
            return False
        _found.add((entry, names))
    return True


@cache
def _lock() -> FileLock | None:
    folder = _temporary_folder()
    return None if folder is None else FileLock(folder / "compiling.lock", blocking=False)


def _first() -> bool:
    """Whether no other process compiles; from now on this one does, as long as it lives."""
    lock = _lock()
    try:
        return lock is None or lock.is_locked or bool(lock.acquire())
    except (Timeout, OSError):
        return False


@cache
def _files(names: tuple[str, ...]) -> tuple[list[Path], str]:
    """The modules' files, and a hash of what they and this module say."""
    files = [Path(importlib.import_module(name).__file__) for name in names]
    texts = [file.read_bytes() for file in (Path(__file__), *files)]
    return files, hashlib.sha256(b"".join(texts)).hexdigest()[:12]


@cache
def compiled(*names: str) -> types.SimpleNamespace:
    """The functions of these modules, compiled; each may call its own and those of earlier ones.

    Calls are inlined, so that tables of many arrays are passed on for nothing (20 ns for a price,
    not 700), but for those of a module's `NOT_INLINED`: large, and called in several places.
    Kept code is found again as long as neither its module nor an earlier one changes.
    """
    if not names:
        return types.SimpleNamespace(bisect_left=njit(_bisect_left))
    module, (_, digest) = importlib.import_module(names[-1]), _files(names)
    made = dict(vars(compiled(*names[:-1])))
    space = vars(module) | made
    for name, value in vars(module).items():
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            twin = types.FunctionType(value.__code__, space, name, value.__defaults__)
            twin.__qualname__ = f"{name}_{digest}"
            twin.__module__ = module.__name__
            inlined = name not in module.NOT_INLINED
            made[name] = njit(twin, forceinline=inlined, **FLAT)
    space.update(made)
    return types.SimpleNamespace(**made)


def _bisect_left(known, value, first, last):
    while first < last:
        middle = (first + last) >> 1
        if known[middle] < value:
            first = middle + 1
        else:
            last = middle
    return first
