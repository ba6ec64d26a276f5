"""Reading and writing recordings: one safetensors file, or shards under a JSON manifest.

A file is mapped into memory, not read: pages come in as they are used. That its content is a
recording is checked once, a block of rows at a time; a stamp in the cache folder then says so, with
the content's hash, for as long as the file keeps its path, size and time of change.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from traces.common.errors import InputError
from traces.common.files import cache_folder, number, replacing
from traces.recordings.manifest import concatenate, shard_paths
from traces.recordings.meta import check_meta, parse_meta
from traces.recordings.recording import Recording, content_hash
from traces.recordings.schema import HEADER_KEY, narrowed
from traces.recordings.validate import validate

SETTLED_NS = 1_000_000_000  # since its last change; clocks of file systems tick every 10 ms
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "?"}
_TYPES |= {f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)}


def build_recording(
    meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray], source: str = "recording"
) -> Recording:
    """A validated Recording of these arrays, integers narrowed as on disk, arrays read-only.

    Raises InputError, naming `source`, when they are not a version 1 recording.
    """
    # Through JSON, so that a tuple in memory and the list read back from disk hash alike.
    meta = json.loads(json.dumps(dict(meta)))
    check_meta(meta, source)
    stored = _narrowed({name: np.asarray(array) for name, array in arrays.items()}, meta)
    validate(meta, stored, source)
    return Recording(meta, stored, source)


def write_recording(
    path: str | os.PathLike, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Recording:
    """Validate, write under a temporary name beside `path`, rename; returns the recording.

    Raises InputError without touching `path` when the content is not a recording, and OSError,
    naming `path`, when the disk does not take it.
    """
    path = Path(path)
    recording = build_recording(meta, arrays, str(path))
    header = {HEADER_KEY: json.dumps(dict(recording.meta), sort_keys=True)}
    with replacing(path) as temporary:
        _save(recording.arrays, temporary, header)
    return recording


def _save(arrays: Mapping[str, np.ndarray], path: Path, header: dict[str, str]) -> None:
    try:
        save_file(dict(arrays), path, metadata=header)
    except SafetensorError as error:
        code = number(error)
        if code is None:
            raise
        raise OSError(code, os.strerror(code), str(path)) from error
    path.chmod(0o644)  # the library writes files that only their owner may read


def read_recording(path: str | os.PathLike) -> Recording:
    """The validated recording at `path`: a .safetensors file, or a .json manifest of shards.

    Raises InputError naming the file, the array and the index of the first fault.
    """
    path = Path(path)
    if path.suffix == ".json":
        return concatenate([_read_file(shard) for shard in shard_paths(path)], str(path))
    return _read_file(path)


def _read_file(path: Path) -> Recording:
    source = str(path)
    if not path.is_file():
        raise InputError(f"{source}: no such file")
    try:
        with safe_open(path, framework="numpy") as file:  # checks the header
            header = file.metadata() or {}
            if HEADER_KEY not in header:
                raise InputError(
                    f"{source}: header has no {HEADER_KEY!r} metadata, not a recording"
                )
        meta = parse_meta(header[HEADER_KEY], source)
        check_meta(meta, source)
        stamp = _stamp_path(path)
        arrays, mapped = _mapped(path, source)
        found = _read_stamp(stamp)
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{source}: not a complete safetensors file: {reason}") from None
    recording = Recording(meta, _narrowed(arrays, meta), source)
    if found is not None:
        recording.memo("content_hash", lambda: found)
        return recording
    release = partial(mapped.madvise, mmap.MADV_DONTNEED)
    validate(dict(meta), recording.arrays, source, release)
    found = recording.memo("content_hash", lambda: content_hash(meta, recording.arrays, release))
    _write_stamp(stamp, found, path)
    return recording


def _narrowed(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: narrowed(name, array, meta["vocab_size"]) for name, array in arrays.items()}


def _mapped(path: Path, source: str) -> tuple[dict[str, np.ndarray], mmap.mmap]:
    """Arrays over the file's pages, read-only; the library has checked the header.

    Raises:
        InputError: an array of a type that numpy lacks, such as bfloat16.
    """
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = 8 + int.from_bytes(mapped[:8], "little")
    tensors = json.loads(mapped[8:start])
    tensors.pop("__metadata__", None)
    arrays = {}
    for name, facts in tensors.items():
        if facts["dtype"] not in _TYPES:
            raise InputError(
                f"{source}: array {name} has type {facts['dtype']}, expected an integer type,"
                " float16, float32 or float64"
            )
        dtype, shape = np.dtype(_TYPES[facts["dtype"]]), tuple(facts["shape"])
        at = start + facts["data_offsets"][0]
        array = np.ndarray(shape, dtype, mapped, at)
        arrays[name] = array if array.flags.aligned else array.copy()
    return arrays, mapped


def _stamp_path(path: Path) -> Path:
    """Where the stamp of this file, as it is now, would lie."""
    facts, real = path.stat(), path.resolve()
    text = f"{_readers()} {real} {facts.st_size} {facts.st_mtime_ns} {facts.st_ino}"
    return cache_folder("recordings") / hashlib.sha256(text.encode()).hexdigest()


@cache
def _readers() -> str:
    """sha256 of what decides whether a file is a recording, and its hash."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for file in sorted((*here.glob("*.py"), *here.with_name("common").glob("*.py"))):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _read_stamp(stamp: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        text = stamp.read_text(encoding="ascii")
        return text if re.fullmatch("[0-9a-f]{64}", text) else None
    return None


def _write_stamp(stamp: Path, content: str, path: Path) -> None:
    """A folder that cannot be written to costs time only.

    A file that has just been written may change again without a later time of change.
    """
    with suppress(OSError):
        if time.time_ns() - path.stat().st_mtime_ns < SETTLED_NS:
            return
        stamp.parent.mkdir(parents=True, exist_ok=True)
        with replacing(stamp) as temporary:
            temporary.write_text(content, encoding="ascii")
