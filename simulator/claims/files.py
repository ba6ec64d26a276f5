"""`claims.csv`, a line for each comparison, and `claims.json`, the same with verdicts."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.claims.options import SPLIT, Plan
from simulator.claims.verdict import Cell, Claim, Row, overall
from simulator.results import write_files
from traces.bootstrap import Interval

CSV, JSON = "claims.csv", "claims.json"
FORMAT, VERSION = "specdec-claims", 1

Found = Sequence[tuple[Claim, Sequence[Row]]]


def write(folder: Path, plan: Plan, found: Found, notes: Sequence[str]) -> None:
    """Both files, or neither."""
    report = _report(plan, found, notes)
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    lines = list(_lines(found))
    write_files(
        folder,
        {
            CSV: lambda path: _write_csv(path, lines),
            JSON: lambda path: path.write_text(text, encoding="utf-8"),
        },
    )


def _write_csv(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")  # claim 2a is always there
        writer.writeheader()
        writer.writerows(lines)


def _lines(found: Found) -> Iterator[dict[str, Any]]:
    for claim, rows in found:
        for row in rows:
            where = row.where
            place = (claim.name, where.recording, where.profile, where.setting)
            names = dict(zip(("claim", "recording", "profile", "setting"), place, strict=True))
            yield from (names | _cell(cell) for cell in row.cells)


def _report(plan: Plan, found: Found, notes: Sequence[str]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "split": SPLIT,
        "recordings": {t.name: t.recording.content_hash for t in plan.traces},
        "concurrency": list(plan.concurrency),
        "resamples": plan.resamples,
        "seed": plan.seed,
        "claims": [
            {
                "claim": claim.name,
                "statement": claim.statement,
                "ratio": claim.ratio,
                "verdict": overall(rows),
                "rows": [_row(row) for row in rows],
            }
            for claim, rows in found
        ],
        "notes": list(notes),
    }


def _row(row: Row) -> dict[str, Any]:
    where = row.where
    place = {"recording": where.recording, "profile": where.profile, "setting": where.setting}
    cells = [_cell(cell) for cell in row.cells]
    return place | _interval(row.ratio) | {"verdict": row.verdict, "cells": cells}


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "at": cell.at,
        "unit": cell.unit,
        "ours": cell.ours.value,
        "other": cell.other.value,
        "ours_nodes": cell.ours.nodes,
        "other_nodes": cell.other.nodes,
        **_interval(cell.ratio),
        "prompts": cell.prompts,
        "beyond_table": cell.beyond_table,
        "verdict": cell.verdict,
    }


def _interval(ratio: Interval) -> dict[str, float | None]:
    return {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}
