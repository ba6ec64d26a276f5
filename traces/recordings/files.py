"""Reading and writing recordings: one safetensors file, or shards under a JSON manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from traces.common.errors import InputError
from traces.common.files import named, number
from traces.recordings.manifest import concatenate, shard_paths
from traces.recordings.meta import check_meta, parse_meta
from traces.recordings.recording import Recording
from traces.recordings.schema import HEADER_KEY, narrowed
from traces.recordings.validate import validate


def build_recording(
    meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray], source: str = "recording"
) -> Recording:
    """A validated Recording of these arrays, integers narrowed as on disk, arrays read-only.

    Raises InputError, naming `source`, when they are not a version 1 recording.
    """
    # Through JSON, so that a tuple in memory and the list read back from disk hash alike.
    meta = json.loads(json.dumps(dict(meta)))
    check_meta(meta, source)
    vocab = meta["vocab_size"]
    stored = {name: narrowed(name, np.asarray(a), vocab) for name, a in arrays.items()}
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    header = {HEADER_KEY: json.dumps(dict(recording.meta), sort_keys=True)}
    try:
        with named(path):
            _save(recording.arrays, temporary, header)
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # the disk's, which was said already
            temporary.unlink(missing_ok=True)
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
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            if HEADER_KEY not in header:
                raise InputError(
                    f"{source}: header has no {HEADER_KEY!r} metadata, not a recording"
                )
            meta = parse_meta(header[HEADER_KEY], source)
            check_meta(meta, source)
            arrays = {name: _tensor(file, name, source) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{source}: not a complete safetensors file: {reason}") from None
    return build_recording(meta, arrays, source)


def _tensor(file, name: str, source: str) -> np.ndarray:
    try:
        return file.get_tensor(name)
    except (TypeError, AttributeError, KeyError):  # types numpy lacks, such as bfloat16
        raise InputError(
            f"{source}: array {name} has type {file.get_slice(name).get_dtype()}, expected an"
            " integer type, float16, float32 or float64"
        ) from None
