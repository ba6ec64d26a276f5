"""Files of a run: written under temporary names and renamed, the summary last."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from simulator.cost import Source
from simulator.results.facts import Columns, Facts
from simulator.results.fold import fold_facts
from simulator.results.window import Window, find_window
from traces.common.files import named, replacing
from traces.common.json import loads

SUMMARY, REQUESTS, STEPS = "summary.json", "requests.parquet", "steps.parquet"
PARQUET = b"PAR1"


def is_complete(folder: Path, config_hash: str) -> bool:
    """Whether `folder` holds the summary and the tables of the very same run."""
    try:
        summary = loads((folder / SUMMARY).read_text(encoding="utf-8"))
        ends = [_end(folder / name) for name in (REQUESTS, STEPS)]
    except (OSError, ValueError):
        return False
    same = isinstance(summary, dict) and summary.get("config_hash") == config_hash
    return same and ends == [PARQUET, PARQUET]


def _end(path: Path) -> bytes:
    """Of a table, where Parquet puts its name when it is written whole."""
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(PARQUET)))
        return file.read()


def write_files(folder: Path, writers: dict[str, Callable[[Path], Any]]) -> None:
    """Let every writer fill a temporary file, then rename all of them in the given order."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:  # which is left in the other order
        paths = {name: stack.enter_context(replacing(folder / name)) for name in reversed(writers)}
        for name, write in writers.items():
            with named(folder / name):
                write(paths[name])


def named_requests(
    requests: Columns, window: Window, tokens: np.ndarray, domains: tuple[str, ...]
) -> dict[str, Any]:
    """Columns of ``requests.parquet``.

    `measured`: the latency metrics count this request.

    Args:
        tokens: (N,) that rounds in the window commit to each.
    """
    facts = Facts(requests, {}, {}, None)
    return requests | {
        "domain": _named(domains, requests["domain"]),
        "measured": window.requests(facts) & ~requests["warmup"],
        "window_tokens": tokens + window.admitted(facts),
    }


def named_steps(steps: Columns) -> dict[str, Any]:
    """Columns of ``steps.parquet``: with names for `source`, where a step's cost came from."""
    return steps | {"source": _named(_SOURCES, steps["source"])}


def _named(names: Sequence[str], index: np.ndarray):
    """(n,) names, as an array of strings of pyarrow."""
    import pyarrow

    return pyarrow.array(names, pyarrow.string()).take(pyarrow.array(index))


_SOURCES = tuple(
    "+".join(flag.name.lower() for flag in Source if bits & flag) for bits in range(2 * max(Source))
)


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


GROUP = 1 << 16  # rows of a row group
_NUMBERS = ("request", "step", "packed_tokens")  # columns of whole numbers that hardly repeat


class RunFiles:
    """The tables of a run, which are appended to, and its summary.

    Nothing is at its place before `publish`. On leaving, unpublished files are removed.

    group: rows that are held until they are written.
    """

    def __init__(self, folder: Path, group: int = GROUP) -> None:
        self.folder, self._group = folder, group
        self._parts = ExitStack()
        names = (SUMMARY, STEPS, REQUESTS)  # renamed in the other order
        self._paths = {n: self._parts.enter_context(replacing(folder / n)) for n in names}
        self._held: dict[str, list] = {REQUESTS: [], STEPS: []}  # tables
        self._writers: dict[str, Any] = {}

    def append(self, name: str, columns: dict[str, Any]) -> None:
        """Add rows to `name` (requests or steps), the same columns every time, perhaps none."""
        import pyarrow

        self._held[name].append(pyarrow.table(columns))
        rows = sum(map(len, self._held[name]))
        if rows >= self._group:
            self._write(name, rows - rows % self._group)

    def _write(self, name: str, rows: int) -> None:
        import pyarrow

        held = self._held[name]
        table = held[0] if len(held) == 1 else pyarrow.concat_tables(held)
        with named(self.folder / name):
            if name not in self._writers:
                self._writers[name] = _writer(self._paths[name], table.schema)
            self._writers[name].write_table(table.slice(0, rows), row_group_size=self._group)
        self._held[name] = [table.slice(rows)] if rows < len(table) else []

    def publish(self, summary: dict[str, Any]) -> None:
        """Write what is held and the summary, and give all files their names, the summary last."""
        for name, held in self._held.items():
            if held:
                self._write(name, sum(map(len, held)))
            with named(self.folder / name):
                self._writers[name].close()
        text = json.dumps(summary, sort_keys=True, indent=2, allow_nan=False) + "\n"
        with named(self.folder / SUMMARY):
            self._paths[SUMMARY].write_text(text, encoding="utf-8")
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            with suppress(OSError):
                writer.close()
        unpublished = Exception("nothing was published")  # to whom nothing is left by `publish`
        self._parts.__exit__(Exception, unpublished, None)


def _writer(path: Path, schema):
    """Dictionaries pay for names and small whole numbers; times hardly ever repeat."""
    import pyarrow
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    often = [
        field.name
        for field in schema
        if not pyarrow.types.is_floating(field.type) and field.name not in _NUMBERS
    ]
    return parquet.ParquetWriter(path, schema, use_dictionary=often)


def write_results(
    folder: Path, summary: dict[str, Any], facts: Facts, domains: tuple[str, ...]
) -> None:
    """Write requests, steps and summary; after a failure none of the new files is there."""
    window = find_window(facts)
    tokens = fold_facts(facts, window)[0]["in_tokens"]
    with RunFiles(folder) as files:
        files.append(REQUESTS, named_requests(facts.requests, window, tokens, domains))
        files.append(STEPS, named_steps(facts.steps))
        files.publish(summary)
