"""The files of a streamed run: filled under temporary names, renamed when all of them are whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Self

import numpy as np

from simulator.results import REQUESTS, STEPS, SUMMARY

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
