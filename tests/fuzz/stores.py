"""Results that studies keep line by line: tournaments, capacities, recommendations, claims."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.studies.store import Store
from tests.fuzz.cases import Target
from tests.studies_cases import OPEN

TASK, FILE = "tournament", "tournament.jsonl"
RESULT = asdict(OPEN)


def _make(folder: Path) -> None:
    lines = [{"key": key, "policy": "cast", "result": RESULT} for key in ("a", "b")]
    lines.append({"key": "c", "policy": "cast", "result": {"refused": "no such depth"}})
    (folder / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _read(folder: Path) -> dict[str, Any]:
    store = Store(folder, TASK)
    return {key: store[key] for key in ("a", "b", "c") if key in store}


def _check(folder: Path, found: dict[str, Any], good: Any) -> None:
    for one in found.values():
        if not isinstance(one, str):
            _check_values(asdict(one), RESULT)
            tables = (one.shares, one.window_shares, one.missed)
            shares = [one.drafting, *(share for table in tables for share in table.values())]
            assert all(0 <= share <= 1 + 1e-9 for share in shares)


def _check_values(found: Any, good: Any) -> None:
    """The same keys; numbers where numbers stood, whole and from 0 where whole ones did."""
    if isinstance(good, dict):
        assert isinstance(found, dict)
        for key in found.keys() & good.keys():
            _check_values(found[key], good[key])
    elif isinstance(good, list):
        assert isinstance(found, list)
        for one in found:
            _check_values(one, good[0])
    elif isinstance(good, bool):
        assert isinstance(found, bool)
    elif found is not None and good is not None:
        assert not isinstance(found, bool)
        assert math.isfinite(found)
        assert isinstance(good, float) or (isinstance(found, int) and found >= 0)


TARGETS = [Target("store of a study", _make, (FILE,), _read, _check)]
