"""Samples on disk while a probe runs, so that an interrupted one goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any, Self

from real_runner.probing.grid import Cell, PrefillCell, Samples, StepCell, fits_in
from traces.common.errors import InputError
from traces.common.json import loads

HEADER = {"format": "specdec-probe", "version": 1}
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
        self.done: set[tuple[Cell, int]] = set()  # cells of passes
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
            self._write(HEADER | {"settings": self._settings})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def has(self, cell: Cell, index: int) -> bool:
        """Whether pass `index` measured the cell, or need not."""
        return (cell, index) in self.done or self.is_skipped(cell)

    def is_skipped(self, cell: Cell) -> bool:
        """Whether this cell or a smaller one did not fit into memory."""
        return any(fits_in(small, cell) for small in self.skipped)

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
        self.done.add((cell, index))

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def _read(self) -> int:
        """Take in the file; returns the bytes of its whole lines."""
        try:
            data = self.path.read_bytes()
            whole = data.rfind(b"\n") + 1
            entries = [loads(line.decode("utf-8")) for line in data[:whole].splitlines()]
            if entries:
                self._compare(entries[0])
            for entry in entries[1:]:
                self._load(entry)
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
            raise InputError(
                f"{self.path}: accepted: samples of an interrupted probe, or no file"
            ) from None
        return whole

    def _compare(self, first: Any) -> None:
        if {key: first[key] for key in HEADER} != HEADER:
            raise ValueError("another format")
        before = first["settings"]
        for key in (*self._settings, *before):
            old, new = before.get(key), self._settings.get(key)
            if old != new:
                raise InputError(
                    f"{self.path}: measured with {key} {old!r}, now {new!r}; accepted: the same "
                    "settings, or another output or probe.name"
                )

    def _load(self, entry: Mapping[str, Any]) -> None:
        cell = KINDS[entry["kind"]](*_numbers(entry["cell"], int))
        if "skipped" in entry:
            self.skipped[cell] = str(entry["skipped"])
            return
        (index,) = _numbers([entry["pass"]], int)
        if (cell, index) in self.done:
            raise ValueError("a pass that stands there already")
        times = (map(float, _numbers(entry[name], int, float)) for name in Samples.__slots__)
        self._take(cell, index, Samples(*map(tuple, times)))


def _numbers(values: Any, *kinds: type) -> list:
    """A list of numbers from 0; ValueError for anything else, a text of digits too."""
    good = (type(one) in kinds and 0 <= one < math.inf for one in values)
    if not isinstance(values, list) or not all(good):
        raise ValueError("numbers that are none")
    return values


def _name(cell: Cell) -> dict[str, Any]:
    kind = next(name for name, known in KINDS.items() if isinstance(cell, known))
    return {"kind": kind, "cell": list(astuple(cell))}
