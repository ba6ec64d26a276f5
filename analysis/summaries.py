"""Finding and reading the ``summary.json`` of every run below some folders."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

from analysis.checks import check_summary
from traces.common.errors import InputError
from traces.common.json import read_json

FILE_NAME = "summary.json"
SOURCES = ("measured", "interpolated", "modelled", "clamped")


@dataclass(frozen=True, slots=True)
class Summary:
    """One checked ``summary.json``; ``data`` holds it as written."""

    path: Path
    data: dict[str, Any]

    @property
    def policy(self) -> str:
        return self.data["policy"]

    @property
    def seed(self) -> int:
        return self.data["seed"]

    @property
    def request_rate(self) -> float:
        """Requests per second; "inf" for a closed loop; 0 where null: see `compare.Load`."""
        rate = self.data["request_rate"]
        return 0.0 if rate is None else float(rate)

    @property
    def closed_loop(self) -> bool:
        return self.request_rate == inf

    @property
    def cost_shares(self) -> dict[str, float]:
        """Share of step time by origin of its cost."""
        return self.data["cost_shares"]["time"]

    def number(self, key: str) -> float | None:
        """A numeric value of the summary; None where it is null, absent or not finite."""
        value = self.data.get(key)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if is_number and isfinite(value) else None


def read_summaries(folders: Iterable[str | os.PathLike]) -> list[Summary]:
    """Every run below the folders, each file once, by path.

    Raises:
        InputError: a folder that is missing or holds no run, or a file that is unreadable,
            incomplete or of another format or version.
    """
    paths = {path.resolve(): path for folder in folders for path in _find(Path(folder))}
    return [read_summary(path) for _, path in sorted(paths.items())]


def _find(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InputError(f"{folder}: not a folder; expected one with {FILE_NAME} files below it")
    found = sorted(folder.rglob(FILE_NAME))
    if not found:
        raise InputError(f"{folder}: no {FILE_NAME} below this folder")
    return found


def read_summary(path: Path) -> Summary:
    """One checked summary; InputError naming the file and what is wrong with it."""
    data = read_json(path, "a finished summary")
    try:
        check_summary(data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return Summary(path, data)
