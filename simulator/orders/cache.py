"""Tables kept in memory and on disk, keyed by what determines them."""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np

from simulator.engine.fingerprint import class_sources
from simulator.orders.build import build_order, resolve_for
from simulator.orders.specs import Order, OwnOrder
from simulator.orders.table import ARRAYS, OrderTable
from traces.common.files import cache_folder, replacing
from traces.recordings.recording import Recording

KEPT = 48  # tables in memory; 6,500 anchors of 63 nodes take 6 MB
_memory: OrderedDict[str, OrderTable] = OrderedDict()


def order_table(spec: Order, recording: Recording) -> OrderTable:
    """The order at every anchor: from memory, from disk, or built (and then kept in both).

    Raises InputError when `spec` needs more ranks or depths than the recording holds.
    """
    resolved = resolve_for(spec, recording)
    # what determines a table: the recording's content, the spec, its and the builder's sources
    own = f" version {resolved.version}" if isinstance(resolved, OwnOrder) else ""
    code = class_sources(build_order.__module__, type(resolved))
    text = f"{recording.content_hash} {recording.splits} {resolved!r} {code}{own}"
    key = hashlib.sha256(text.encode()).hexdigest()
    table = _memory.get(key)
    if table is None:
        path = cache_folder("orders") / f"{key}.npz"
        table = _read(path, key, resolved, recording.num_anchors)
        if table is None:
            table = build_order(resolved, recording)
            _write(path, key, table)
    _memory[key] = table
    _memory.move_to_end(key)
    while len(_memory) > KEPT:
        _memory.popitem(last=False)
    return replace(table, spec=spec)


def forget() -> None:
    """Empty the memory cache; files stay."""
    _memory.clear()


def _read(path: Path, key: str, resolved: Order, rows: int) -> OrderTable | None:
    """The stored table, or None if there is none that is whole: then it is built again."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if file["key"].item() != key:
                return None
            arrays = {name: file[name] for name in ARRAYS}
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, TypeError, zipfile.BadZipFile):
        return None  # TypeError: a bare array has no keys
    if any(array.ndim == 0 or len(array) != rows for array in arrays.values()):
        return None
    return OrderTable(resolved, np.arange(rows), **arrays)


def _write(path: Path, key: str, table: OrderTable) -> None:
    """A folder that cannot be written to costs time only."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, key=np.array(key), **{name: getattr(table, name) for name in ARRAYS})
