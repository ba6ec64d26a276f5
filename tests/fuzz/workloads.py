"""Workload files of the five formats: every row is kept or counted, times do not fall."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.cases import Target
from tests.workload_texts import TEXTS
from traces.workloads import open_workload, scaled

MOST_TOKENS = 10**7


def _make(name: str):
    file, text = TEXTS[name]
    return lambda folder: (folder / file).write_text(text)


def _read(name: str):
    file, _ = TEXTS[name]

    def read(folder: Path) -> tuple[list, Any]:
        options = {"characters_per_token": 4} if name == "sharegpt" else {}
        workload = open_workload(folder / file, name, **options)
        played = scaled(workload)
        return list(played), played.report.describe()

    return read


def _check(name: str):
    def check(folder: Path, found: tuple[list, Any], good: tuple[list, Any]) -> None:
        rows, report = found
        prompt = np.concatenate([piece.prompt_tokens for piece in rows])
        output = np.concatenate([piece.output_tokens for piece in rows])
        for lengths in (prompt, output):
            assert ((lengths >= 1) & (lengths <= MOST_TOKENS)).all()
        if rows[0].time_s is not None:
            time_s = np.concatenate([piece.time_s for piece in rows])
            assert time_s[0] == 0
            assert (np.diff(time_s) >= 0).all()
            assert np.isfinite(time_s).all()
        assert report["rows"] == len(prompt)
        data = (folder / TEXTS[name][0]).read_bytes()
        assert len(prompt) + sum(report["dropped"].values()) == _items(name, data)

    return check


def _items(name: str, data: bytes) -> int:
    """Requests that the file holds, counted another way."""
    text = data.decode("utf-8-sig")
    if name == "sharegpt":
        return len(json.loads(text))
    lines = [line for line in text.split("\n") if line.strip()]
    return len(lines) - (name != "mooncake")


TARGETS = [
    Target(f"workload {name}", _make(name), ("*",), _read(name), _check(name)) for name in TEXTS
]
