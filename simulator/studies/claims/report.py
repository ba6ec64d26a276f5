"""`claims.csv`, a line for each comparison, and `claims.json`, the same with verdicts."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.results.files import write_files
from simulator.studies.claims.claims import SPLIT, Plan
from simulator.studies.claims.verdict import (
    CONFIRMED,
    REFUTED,
    UNDECIDED,
    Cell,
    Claim,
    Row,
    counted,
    overall,
)
from traces.common.intervals import Interval

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


# ---------------- What the check prints: a table for each claim, then a line for each.


WIDTH = 160  # of output that is no terminal
SIGNS = {CONFIRMED: "+", REFUTED: "-", UNDECIDED: " "}


def print_claims(found: Sequence[tuple[Claim, Sequence[Row]]]) -> None:
    """Ratios with the favoured side on top; 95 % intervals over prompts."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    for claim, rows in found:
        console.print(Text(f"\n{claim.name}. {claim.statement}"), style="bold")
        console.print(Text(claim.ratio))
        console.print(_rows(claim, rows))
    cells = [cell for _, rows in found for row in rows for cell in row.cells]
    console.print(_legend(cells), style="dim")
    console.print(_verdicts(found))


def _rows(claim: Claim, rows: Sequence[Row]) -> Table:
    names = {"recording": "recording", "profile": "profile", "setting": ""}
    shown = [key for key in names if any(getattr(row.where, key) for row in rows)]
    columns = list(dict.fromkeys(cell.at for row in rows for cell in row.cells))
    table = Table(*(names[key] for key in shown), box=None, pad_edge=False)
    for at in columns:
        table.add_column(at, justify="right", no_wrap=True)
    for heading in ("mean", "95 % interval", "verdict"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        place = [getattr(row.where, key) for key in shown]
        cells = {cell.at: cell for cell in row.cells}
        ratios = [_ratio(cells[at]) if at in cells else "" for at in columns]
        mean = row.ratio
        span = "-" if mean.low is None else f"{mean.low:.3f} to {mean.high:.3f}"
        table.add_row(*place, *ratios, f"{mean.value:.3f}", span, row.verdict)
    return table


def _ratio(cell: Cell) -> str:
    sign = "=" if cell.same else SIGNS[cell.verdict]
    return f"{cell.ratio.value:.3f}{sign}{'m' if cell.beyond_table else ' '}"


def _legend(cells: Sequence[Cell]) -> str:
    text = (
        "\n+ and -: the 95 % interval over prompts is above or below 1; =: both did the same; mean:"
        " geometric, and judged (claim 1: every cell is)"
    )
    if any(cell.beyond_table for cell in cells):
        text += "; m: steps of either lie beyond the measured table"
    return text


def _verdicts(found: Sequence[tuple[Claim, Sequence[Row]]]) -> Table:
    table = Table("claim", "", "verdict", "rows", box=None, pad_edge=False)
    for kind in (CONFIRMED, REFUTED, UNDECIDED):
        table.add_column(kind, justify="right")
    for claim, rows in found:
        count = counted(rows)
        kinds = (str(count[kind]) for kind in (CONFIRMED, REFUTED, UNDECIDED))
        table.add_row(claim.name, claim.statement, overall(rows), str(len(rows)), *kinds)
    return table
