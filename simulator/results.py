"""Files of a run: written under temporary names and renamed, the summary last."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cost import Source
from simulator.ledger import Columns, Facts
from simulator.metrics import measured, window_tokens
from simulator.window import Window, find_window
from traces.disk import named
from traces.strict_json import loads

SUMMARY, REQUESTS, STEPS = "summary.json", "requests.parquet", "steps.parquet"


def is_complete(folder: Path, config_hash: str) -> bool:
    """Whether `folder` holds the summary and the tables of the very same run."""
    import pyarrow
    from pyarrow import parquet

    try:
        for name in (REQUESTS, STEPS):
            parquet.read_metadata(folder / name)
        summary = loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError, pyarrow.ArrowException):
        return False
    return isinstance(summary, dict) and summary.get("config_hash") == config_hash


def write_results(
    folder: Path, summary: dict[str, Any], facts: Facts, domains: tuple[str, ...]
) -> None:
    """Write requests, steps and summary; after a failure none of the new files is there."""
    text = json.dumps(summary, sort_keys=True, indent=2, allow_nan=False) + "\n"
    write_files(
        folder,
        {
            REQUESTS: lambda path: _write_parquet(path, request_columns(facts, domains)),
            STEPS: lambda path: _write_parquet(path, step_columns(facts)),
            SUMMARY: lambda path: path.write_text(text, encoding="utf-8"),
        },
    )


def write_files(folder: Path, writers: dict[str, Callable[[Path], Any]]) -> None:
    """Let every writer fill a temporary file, then rename all of them in the given order."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = {name: folder / f".{name}.{os.getpid()}.tmp" for name in writers}
    try:
        for name, write in writers.items():
            with named(folder / name):
                write(temporary[name])
        for name, path in temporary.items():
            with named(folder / name):
                os.replace(path, folder / name)
    finally:
        for path in temporary.values():
            with suppress(OSError):  # the disk's, which was said already
                path.unlink(missing_ok=True)


def request_columns(facts: Facts, domains: tuple[str, ...]) -> dict[str, Any]:
    """Columns of ``requests.parquet``."""
    window = find_window(facts)
    return named_requests(facts, window, window_tokens(facts, window), domains)


def named_requests(
    facts: Facts, window: Window, tokens: np.ndarray, domains: tuple[str, ...]
) -> dict[str, Any]:
    """Columns of ``requests.parquet`` for the requests of `facts`.

    `measured`: the latency metrics count this request.

    Args:
        tokens: (N,) that each emits inside the window.
    """
    return facts.requests | {
        "domain": _named(domains, facts.requests["domain"]),
        "measured": measured(facts, window),
        "window_tokens": tokens,
    }


def step_columns(facts: Facts) -> dict[str, Any]:
    """Columns of ``steps.parquet``."""
    return named_steps(facts.steps)


def named_steps(steps: Columns) -> dict[str, Any]:
    """`steps` with names for `source`, which says where the step's cost came from."""
    return steps | {"source": _named(_SOURCES, steps["source"])}


def _named(names: Sequence[str], index: np.ndarray):
    """(n,) names, as an array of strings of pyarrow."""
    import pyarrow

    return pyarrow.array(names, pyarrow.string()).take(pyarrow.array(index))


def _source_name(bits: int) -> str:
    return "+".join(flag.name.lower() for flag in Source if bits & flag)


_SOURCES = tuple(map(_source_name, range(2 * max(Source))))


def _write_parquet(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path)


def discard(folder: Path) -> None:
    """Remove the traces of a run that wrote no results: Hydra's files, then empty folders.

    A folder that holds anything else stays, such as one with the results of an earlier run.
    """
    if not folder.is_dir() or any(path.name != ".hydra" for path in folder.iterdir()):
        return
    for path in (folder / ".hydra").glob("*"):
        path.unlink()
    here = Path.cwd()
    for path in (folder / ".hydra", folder, *list(folder.parents)[:2]):
        try:
            if path == here or path in here.parents:
                return
            path.rmdir()
        except OSError:  # not empty: another run's
            return
