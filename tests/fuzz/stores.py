"""Results that a search keeps line by line: tournaments, capacities, recommendations."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.studies.capacity.trial import read_trial
from simulator.studies.contest.grid import read_kept
from simulator.studies.store import Store, read_result
from tests.fuzz.cases import Target
from tests.fuzz.trees import json_damaged

FILE = "kept.jsonl"
RESULT = {
    "tokens_s": 100.0,
    "modelled": 0.0,
    "clamped": 0.1,
    "nodes_per_request": 4.0,
    "requests": 3,
    "prompts": [1, 2],
    "tokens": [10.0, 20.0],
    "seconds": [0.1, 0.2],
}
TRIAL = {
    "load": 4.0,
    "seed": 0,
    "requests": 30,
    "judged": 20,
    "rejected": 0,
    "seconds": 9.5,
    "stay_s": 0.4,
    "full": True,
    "growth": -0.01,
    "growing": False,
    "levels_ms": {"ttft": 20.0, "itl": None},
    "missed": {"ttft": 0.1},
    "attained": 0.9,
    "request_throughput": 3.9,
    "output_throughput": 390.0,
    "goodput": None,
    "most_running": 3,
    "shares": {"measured": 0.9, "modelled": 0.1},
}
KEPT = {
    "clients": None,
    "rate": 3.9,
    "arriving": 4.0,
    "judged": 3,
    "rejected": 0,
    "levels_ms": {"ttft": 20.0, "e2el": None},
    "nodes": 3.5,
    "modelled": 0.0,
    "clamped": 0.1,
    "growing": False,
    "prompts": [1, 2],
    "tokens": [10.0, 20.0],
    "seconds": [0.1, 0.2],
    "requests": [1.0, 2.0],
    "good": [1.0, 1.0],
}


def _make(result: dict[str, Any]) -> Callable[[Path], None]:
    lines = [{"key": key, "policy": "cast", "result": result} for key in ("a", "b")]
    lines.append({"key": "c", "policy": "cast", "result": {"refused": "no such depth"}})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return lambda folder: (folder / FILE).write_text(text)


def _target(name: str, result: dict[str, Any], read: Callable[[Any], Any]) -> Target:
    def read_all(folder: Path) -> dict[str, Any]:
        store = Store(folder, FILE, read, f"a {name}")
        return {key: store[key] for key in ("a", "b", "c") if key in store}

    def check(folder: Path, found: dict[str, Any], good: Any) -> None:
        for one in found.values():
            if not isinstance(one, str):
                _check(asdict(one), result)
                assert all(0 <= share <= 1 + 1e-9 for share in _shares(one))

    return Target(f"{name} store", _make(result), {FILE: json_damaged}, read_all, check)


def _shares(one: Any) -> list[float]:
    """Those that a result has, by the names of its fields."""
    single = (getattr(one, name, 0.0) for name in ("attained", "modelled", "clamped"))
    tables = (getattr(one, name, {}) for name in ("shares", "missed"))
    return [*single, *(share for table in tables for share in table.values())]


def _check(found: Any, good: Any) -> None:
    """The same keys; numbers where numbers stood, whole and from 0 where whole ones did."""
    if isinstance(good, dict):
        assert isinstance(found, dict)
        for key in found.keys() & good.keys():
            _check(found[key], good[key])
    elif isinstance(good, list):
        assert isinstance(found, list)
        for one in found:
            _check(one, good[0])
    elif isinstance(good, bool):
        assert isinstance(found, bool)
    elif found is not None and good is not None:
        assert not isinstance(found, bool)
        assert math.isfinite(found)
        assert isinstance(good, float) or (isinstance(found, int) and found >= 0)


TARGETS = [
    _target("tournament", RESULT, read_result),
    _target("capacity", TRIAL, read_trial),
    _target("recommendation", KEPT, read_kept),
]
