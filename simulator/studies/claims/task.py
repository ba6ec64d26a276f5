"""`task=claims`: replay, play, judge, print, and write into the run's folder.

`claims.csv` has a line for each comparison, `claims.json` the same with verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.engine.inputs import load_recording
from simulator.studies.claims import comparisons
from simulator.studies.claims.claims import (
    CLAIMS,
    CONFIRMED,
    REFUTED,
    SPLIT,
    UNDECIDED,
    Bench,
    Claim,
    ClaimsPlan,
    Comparison,
    Row,
    overall,
    read_plan,
    rows_of,
)
from simulator.studies.report import (
    BEYOND,
    SIGNS,
    csv_text,
    json_text,
    sign,
    span,
    with_ends,
    write_texts,
)
from simulator.studies.store import Store, play_all
from traces.common.table import Notes, Part, Table, emit

CSV, JSON = "claims.csv", "claims.json"
FORMAT, VERSION = "specdec-claims", 1

Found = Sequence[tuple[Claim, Sequence[Row]]]

load = read_plan


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Print the claims with their numbers, and write `claims.csv` and `claims.json`.

    Every finished simulation is in `claims.jsonl` there at once; what it holds is not played again.

    Raises:
        InputError: see `read_plan`.
    """
    plan = read_plan(cfg)
    with Store(folder, "claims") as store:
        compared = list(_compared(plan, store))
    notes = list(dict.fromkeys(one for one in compared if isinstance(one, str)))
    cells = [one for one in compared if isinstance(one, Comparison)]
    judged = [(claim, rows_of(claim, cells)) for claim in CLAIMS]
    found = [(claim, rows) for claim, rows in judged if rows]
    lines = [
        {"claim": claim.name, **_place(row), **_cell(cell)}
        for claim, rows in found
        for row in rows
        for cell in row.cells
    ]
    write_texts(folder, {CSV: csv_text(lines), JSON: json_text(_report(plan, found, notes))})
    emit(_parts(found), "table")
    for note in notes:
        print(f"note: {note}, left out there")
    store.say_done(len(cells), "comparisons", folder / CSV)


def _compared(plan: ClaimsPlan, store: Store) -> Iterator[Comparison | str]:
    """All comparisons, and why others could not be made; one recording after the other."""
    for name in plan.traces:
        bench = Bench(plan, name)
        yield from comparisons.parent_against_marginal(bench)
        yield from comparisons.threshold_against_fixed(bench, bench.threshold_order)
        yield from _played(bench, store)


def _played(bench: Bench, store: Store) -> Iterator[Comparison | str]:
    runs, found = {}, []
    for where, concurrency, part in comparisons.matches(bench):
        nodes, keys = part.sides(bench), []
        for node in nodes:
            one = bench.run(node, where.profile, concurrency)
            words = {"recording": bench.name, "profile": where.profile, "concurrency": concurrency}
            keys.append(one.key)
            runs[one.key] = one, {"policy": node.get("name"), **words}
        found.append((where, concurrency, nodes, keys))
    play_all(runs, store)
    for where, concurrency, nodes, keys in found:
        yield comparisons.compared(bench, where, concurrency, nodes, [store[key] for key in keys])


def _report(plan: ClaimsPlan, found: Found, notes: Sequence[str]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "split": SPLIT,
        "recordings": {
            name: load_recording(node).content_hash for name, node in plan.traces.items()
        },
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
    return {
        **_place(row),
        **with_ends("ratio", row.ratio),
        "verdict": row.verdict,
        "cells": [_cell(cell) for cell in row.cells],
    }


def _place(row: Row) -> dict[str, str]:
    return {key: getattr(row.where, key) for key in ("recording", "profile", "setting")}


def _cell(cell: Comparison) -> dict[str, Any]:
    return {
        "at": cell.at,
        "unit": cell.unit,
        "ours": cell.ours.value,
        "other": cell.other.value,
        "ours_nodes": cell.ours.nodes,
        "other_nodes": cell.other.nodes,
        **with_ends("ratio", cell.ratio),
        "prompts": cell.prompts,
        "beyond_table": cell.beyond_table,
        "verdict": cell.verdict,
    }


def _parts(found: Found) -> Iterator[Part]:
    """A table for each claim, then a line for each; the favoured side is on top of ratios."""
    for claim, rows in found:
        yield _table(claim, rows)
    beyond = any(cell.beyond_table for _, rows in found for row in rows for cell in row.cells)
    legend = (
        f"{SIGNS}; =: both did the same; mean: geometric, and judged (claim 1: every cell is)"
        f"{BEYOND if beyond else ''}"
    )
    yield Notes([("signs", legend)])
    kinds = (CONFIRMED, REFUTED, UNDECIDED)
    lines = []
    for claim, rows in found:
        verdicts = [row.verdict for row in rows]
        counts = (str(verdicts.count(kind)) for kind in kinds)
        lines.append([claim.name, claim.statement, overall(rows), str(len(rows)), *counts])
    yield Table(["claim", "", "verdict", "rows", *kinds], lines, align="lllrrrr")


def _table(claim: Claim, rows: Sequence[Row]) -> Table:
    shown = [key for key in _place(rows[0]) if any(_place(row)[key] for row in rows)]
    columns = list(dict.fromkeys(cell.at for row in rows for cell in row.cells))
    body = []
    for row in rows:
        ratios = dict.fromkeys(columns, "")
        for cell in row.cells:
            mark = "=" if cell.same else sign(cell.ratio)
            ratios[cell.at] = f"{cell.ratio.value:.3f}{mark}{'m' if cell.beyond_table else ' '}"
        place = [_place(row)[key] for key in shown]
        mean = [f"{row.ratio.value:.3f}", span(row.ratio), row.verdict]
        body.append([*place, *ratios.values(), *mean])
    heads = ["" if key == "setting" else key for key in shown]
    return Table(
        [*heads, *columns, "mean", "95 % interval", "verdict"],
        body,
        caption=f"{claim.name}. {claim.statement}: {claim.ratio}",
        align="l" * len(shown) + "r" * len(columns) + "rll",
    )
