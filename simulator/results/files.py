"""Files of a run: written under temporary names and renamed, the summary last."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from simulator.cost import Source
from simulator.results.facts import Columns, Facts
from simulator.results.latency import measured, window_tokens
from simulator.results.window import Window, find_window
from traces.common.files import named
from traces.common.json import loads

SUMMARY, REQUESTS, STEPS = "summary.json", "requests.parquet", "steps.parquet"
PARQUET = b"PAR1"


def is_complete(folder: Path, config_hash: str) -> bool:
    """Whether `folder` holds the summary and the tables of the very same run."""
    try:
        summary = loads((folder / SUMMARY).read_text(encoding="utf-8"))
        whole = all(_ends_well(folder / name) for name in (REQUESTS, STEPS))
    except (OSError, ValueError):
        return False
    return whole and isinstance(summary, dict) and summary.get("config_hash") == config_hash


def _ends_well(path: Path) -> bool:
    """Whether a table was written to its end, where Parquet puts its name."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - len(PARQUET)))
        return file.read() == PARQUET


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


GROUP = 1 << 16  # rows of a row group
_NUMBERS = ("request", "step", "packed_tokens")  # columns of whole numbers that hardly repeat


class RunFiles:
    """Tables that are appended to, and the summary. On leaving, unpublished files are removed.

    group: rows that are held until they are written.
    """

    def __init__(self, folder: Path, group: int = GROUP) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        names = (REQUESTS, STEPS, SUMMARY)  # renamed in this order
        self.paths = {name: folder / f".{name}.{os.getpid()}.tmp" for name in names}
        self._tables = {name: _Table(self.paths[name], group) for name in (REQUESTS, STEPS)}

    def append(self, name: str, columns: dict[str, Any]) -> None:
        """Add rows to `name` (requests or steps), the same columns every time, perhaps none."""
        self._tables[name].append(columns)

    def close_tables(self) -> None:
        """Write what is held; no rows are added any more."""
        for table in self._tables.values():
            table.close()

    def prompts_longer(self, tokens: int) -> float:
        """Share of the requests written whose prompt is longer."""
        from pyarrow import parquet

        longer = count = 0
        with parquet.ParquetFile(self.paths[REQUESTS]) as file:
            for batch in file.iter_batches(GROUP, columns=["prompt_tokens"]):
                values = batch.column(0).to_numpy()
                longer += int(np.count_nonzero(values > tokens))
                count += len(values)
        return longer / count

    def publish(self, summary: dict[str, Any]) -> None:
        """Write the summary and give all files their names, the summary last."""
        text = json.dumps(summary, sort_keys=True, indent=2, allow_nan=False) + "\n"
        self.paths[SUMMARY].write_text(text, encoding="utf-8")
        for name, path in self.paths.items():
            os.replace(path, self.folder / name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for table in self._tables.values():
            table.abandon()
        for path in self.paths.values():
            path.unlink(missing_ok=True)


class _Table:
    """One parquet file in row groups of `group` rows."""

    def __init__(self, path: Path, group: int) -> None:
        self._path, self._group, self._writer = path, group, None
        self._held: list = []  # tables
        self._rows = 0

    def append(self, columns: dict[str, Any]) -> None:
        import pyarrow

        table = pyarrow.table(columns)
        self._held.append(table)
        self._rows += len(table)
        if self._rows >= self._group:
            self._write(self._rows - self._rows % self._group)

    def _write(self, rows: int) -> None:
        import pyarrow
        from pyarrow import parquet

        table = pyarrow.concat_tables(self._held)
        if self._writer is None:
            # Dictionaries pay for names and small whole numbers; times hardly ever repeat.
            often = [field.name for field in table.schema if _repeats(field)]
            self._writer = parquet.ParquetWriter(self._path, table.schema, use_dictionary=often)
        self._writer.write_table(table.slice(0, rows), row_group_size=self._group)
        rest = table.slice(rows)
        self._held, self._rows = ([rest] if len(rest) else []), len(rest)

    def close(self) -> None:
        if self._held:
            self._write(self._rows)
        self._writer.close()

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _repeats(field) -> bool:
    import pyarrow

    return not pyarrow.types.is_floating(field.type) and field.name not in _NUMBERS
