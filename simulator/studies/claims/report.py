"""`claims.csv`, a line for each comparison, and `claims.json`, the same with verdicts; printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from simulator.engine.inputs import load_recording
from simulator.studies.claims.claims import SPLIT, ClaimsPlan
from simulator.studies.claims.verdict import (
    CONFIRMED,
    REFUTED,
    UNDECIDED,
    Claim,
    Comparison,
    Row,
    counted,
    overall,
)
from simulator.studies.report import csv_text, ends, json_text, span, write_texts
from traces.common.intervals import Interval
from traces.common.table import Notes, Part, Table, emit

CSV, JSON = "claims.csv", "claims.json"
FORMAT, VERSION = "specdec-claims", 1
SIGNS = {CONFIRMED: "+", REFUTED: "-", UNDECIDED: " "}

Found = Sequence[tuple[Claim, Sequence[Row]]]


def write(folder: Path, plan: ClaimsPlan, found: Found, notes: Sequence[str]) -> None:
    """Both files, or neither."""
    report = json_text(_report(plan, found, notes))
    write_texts(folder, {CSV: csv_text(list(_lines(found))), JSON: report})


def _lines(found: Found) -> Iterator[dict[str, Any]]:
    for claim, rows in found:
        for row in rows:
            yield from ({"claim": claim.name} | _place(row) | _cell(cell) for cell in row.cells)


def _report(plan: ClaimsPlan, found: Found, notes: Sequence[str]) -> dict[str, Any]:
    hashes = {name: load_recording(node).content_hash for name, node in plan.traces.items()}
    return {
        "format": FORMAT,
        "version": VERSION,
        "split": SPLIT,
        "recordings": hashes,
        "concurrency": list(plan.asked.concurrency),
        "resamples": plan.asked.resamples,
        "seed": plan.config["seed"],
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
    cells = [_cell(cell) for cell in row.cells]
    return _place(row) | _interval(row.ratio) | {"verdict": row.verdict, "cells": cells}


def _place(row: Row) -> dict[str, str]:
    where = row.where
    return {"recording": where.recording, "profile": where.profile, "setting": where.setting}


def _cell(cell: Comparison) -> dict[str, Any]:
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
    return {"ratio": ratio.value, **ends("ratio", ratio)}


def print_claims(found: Found) -> None:
    """A table for each claim, then a line for each; the favoured side is on top of ratios."""
    emit(_parts(found), "table")


def _parts(found: Found) -> Iterator[Part]:
    for claim, rows in found:
        yield _table(claim, rows)
    cells = [cell for _, rows in found for row in rows for cell in row.cells]
    yield Notes([("signs", _legend(cells))])
    yield _verdicts(found)


def _table(claim: Claim, rows: Sequence[Row]) -> Table:
    names = {"recording": "recording", "profile": "profile", "setting": ""}
    shown = [key for key in names if any(getattr(row.where, key) for row in rows)]
    columns = list(dict.fromkeys(cell.at for row in rows for cell in row.cells))
    body = []
    for row in rows:
        place = [getattr(row.where, key) for key in shown]
        cells = {cell.at: cell for cell in row.cells}
        ratios = [_ratio(cells[at]) if at in cells else "" for at in columns]
        body.append([*place, *ratios, f"{row.ratio.value:.3f}", span(row.ratio), row.verdict])
    return Table(
        [*(names[key] for key in shown), *columns, "mean", "95 % interval", "verdict"],
        body,
        caption=f"{claim.name}. {claim.statement}: {claim.ratio}",
        align="l" * len(shown) + "r" * len(columns) + "rll",
    )


def _ratio(cell: Comparison) -> str:
    sign = "=" if cell.same else SIGNS[cell.verdict]
    return f"{cell.ratio.value:.3f}{sign}{'m' if cell.beyond_table else ' '}"


def _legend(cells: Sequence[Comparison]) -> str:
    text = (
        "+ and -: the 95 % interval over prompts is above or below 1; =: both did the same; mean:"
        " geometric, and judged (claim 1: every cell is)"
    )
    if any(cell.beyond_table for cell in cells):
        text += "; m: steps of either lie beyond the measured table"
    return text


def _verdicts(found: Found) -> Table:
    kinds = (CONFIRMED, REFUTED, UNDECIDED)
    rows = []
    for claim, own in found:
        count = counted(own)
        numbers = (str(count[kind]) for kind in kinds)
        rows.append([claim.name, claim.statement, overall(own), str(len(own)), *numbers])
    return Table(["claim", "", "verdict", "rows", *kinds], rows, align="lllrrrr")
