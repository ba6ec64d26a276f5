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
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

# Interpreted work of a process, in items of about 4 us, from which numba is worth its loading,
# and its compiling.
WORTH, UNKEPT = 200_000, 4_000_000
_work = 0
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
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no place to write: numba names none
        folder = _temporary_folder()
    if folder is None:
        return numba.njit(**options)(function)
    numba.config.CACHE_DIR = str(folder)
    return numba.njit(cache=True, **options)(function)


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


def worth(items: int, *names: str) -> bool:
    """Note so many items of interpreted work; whether compiled modules should take them instead.

    Loading them takes about as long as `WORTH` items: no process waits twice as long as need be.
    Compiling them, once on a machine, takes as long as `UNKEPT`.
    """
    global _work
    _work += items
    return _work >= WORTH and (_work >= UNKEPT or kept(*names))


@cache
def kept(*names: str) -> bool:
    """Whether compiled code of these modules lies beside their sources."""
    files, digest = _files(names)
    return any(any((file.parent / "__pycache__").glob(f"*_{digest}_*.nbi")) for file in files)


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
    Kept code is found again as long as none of the modules changes, not its own alone.
    """
    modules, (_, digest) = [importlib.import_module(name) for name in names], _files(names)
    made: dict[str, Any] = {"bisect_left": njit(_bisect_left)}
    for module in modules:
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
