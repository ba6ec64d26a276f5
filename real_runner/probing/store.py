"""Samples on disk while a probe runs, so that an interrupted one goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from real_runner.probing.grid import Cell, PrefillCell, StepCell
from real_runner.probing.samples import Samples
from traces.common.errors import InputError
from traces.common.json import loads

FORMAT = "specdec-probe"
VERSION = 1
KINDS = {"step": StepCell, "prefill": PrefillCell}


class Store:
    """`NAME.partial.jsonl`: a line of settings, then one for every cell of every pass.

    A line cut short by a crash is measured again. Files of other settings are left alone.

    Raises:
        InputError: the file is of other settings, or no such file at all.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.samples: dict[Cell, Samples] = {}
        self.skipped: dict[Cell, str] = {}
        self._done: set[tuple[Cell, int]] = set()
        self._settings = json.loads(json.dumps(settings))
        whole = self._read() if path.exists() else 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            reason = f"{error.strerror}; accepted: a path to write to"
            raise InputError(f"{path}: no samples can be kept there ({reason})") from None
        self._file.truncate(whole)
        if not whole:
            self._write({"format": FORMAT, "version": VERSION, "settings": self._settings})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def visits(self) -> int:
        """Cells of passes that are done."""
        return len(self._done)

    def has(self, cell: Cell, index: int) -> bool:
        """Whether pass `index` measured the cell, or need not."""
        return (cell, index) in self._done or self.is_skipped(cell)

    def is_skipped(self, cell: Cell) -> bool:
        """Whether this cell or a smaller one did not fit into memory."""
        return any(small.fits_in(cell) for small in self.skipped)

    def add(self, cell: Cell, index: int, samples: Samples) -> None:
        """Keep what pass `index` measured of a cell."""
        self._write(_name(cell) | {"pass": index} | asdict(samples))
        self._take(cell, index, samples)

    def skip(self, cell: Cell, reason: str) -> None:
        """Leave a cell out, and every larger one with it."""
        self._write(_name(cell) | {"skipped": reason})
        self.skipped[cell] = reason

    def kept(self) -> dict[Cell, Samples]:
        """All samples but those of skipped cells."""
        return {cell: one for cell, one in self.samples.items() if not self.is_skipped(cell)}

    def _take(self, cell: Cell, index: int, samples: Samples) -> None:
        self.samples[cell] = self.samples.get(cell, Samples()) + samples
        self._done.add((cell, index))

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def _read(self) -> int:
        """Take in the file; returns the bytes of its whole lines."""
        try:
            data = self.path.read_bytes()
        except OSError:
            raise self._damaged() from None
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines()
        if not lines:
            return 0
        try:
            entries = [loads(line.decode("utf-8")) for line in lines]
            self._compare(entries[0])
            for entry in entries[1:]:
                self._load(entry)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            if isinstance(error, InputError):
                raise
            raise self._damaged() from None
        return whole

    def _compare(self, first: Any) -> None:
        if (first["format"], first["version"]) != (FORMAT, VERSION):
            raise self._damaged()
        before = first["settings"]
        for key in (*self._settings, *before):
            old, new = before.get(key), self._settings.get(key)
            if old != new:
                raise InputError(
                    f"{self.path}: measured with {key} {old!r}, now {new!r}; accepted: the same "
                    "settings, or another output or probe.name"
                )

    def _load(self, entry: Mapping[str, Any]) -> None:
        cell = KINDS[entry["kind"]](*entry["cell"])
        if not all(_is_whole(size) for size in entry["cell"]):
            raise ValueError("sizes that are none")
        if "skipped" in entry:
            self.skipped[cell] = str(entry["skipped"])
            return
        index = entry["pass"]
        if not _is_whole(index) or (cell, index) in self._done:
            raise ValueError("no pass, or one that stands there already")
        self._take(cell, index, Samples(*(_seconds(entry[name]) for name in Samples.__slots__)))

    def _damaged(self) -> InputError:
        return InputError(f"{self.path}: accepted: samples of an interrupted probe, or no file")


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _seconds(values: Any) -> tuple[float, ...]:
    """Times from 0; ValueError for anything else, a text of digits too."""
    numbers = all(type(one) in (int, float) and 0 <= one < math.inf for one in values)
    if not isinstance(values, list) or not numbers:
        raise ValueError("times that are none")
    return tuple(map(float, values))


def _name(cell: Cell) -> dict[str, Any]:
    kind = next(name for name, known in KINDS.items() if isinstance(cell, known))
    return {"kind": kind, "cell": [*asdict(cell).values()]}
