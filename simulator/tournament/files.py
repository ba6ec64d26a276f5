"""`tournament.csv`, a line for each cell and rule, and the means of it: over a deployment's cells,
and over all cells by rival.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.results import write_files
from simulator.tournament.plan import Plan
from simulator.tournament.standings import Everywhere, Overall, Versus

CELLS, OVERALL = "tournament.csv", "tournament_overall.csv"
RIVALS = "tournament_rivals.csv"


def write_tables(
    folder: Path,
    plan: Plan,
    cells: Sequence[Versus],
    overall: Sequence[Overall],
    everywhere: Sequence[Everywhere],
) -> None:
    """All files; units are in the columns' names, ratios are candidate over other."""
    tables = {
        CELLS: [_cell(plan, one) for one in cells],
        OVERALL: [_overall(plan, one) for one in overall],
        RIVALS: [{"candidate": plan.candidate.policy, **asdict(one)} for one in everywhere],
    }
    write_files(folder, {name: _writer(rows) for name, rows in tables.items()})


def _writer(rows: list[dict[str, Any]]):
    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    return write


def _cell(plan: Plan, one: Versus) -> dict[str, Any]:
    cell, ours, theirs = one.cell, one.candidate, one.score
    return {
        "profile": cell.deployment.profile,
        "trace": cell.deployment.trace,
        "domain": cell.domain,
        "max_concurrency": cell.concurrency,
        "candidate": plan.candidate.policy,
        "candidate_tokens_per_s": ours.tokens_s,
        "best_other_by_split": one.best_by,
        "other": one.other.policy,
        "other_setting": one.other.setting,
        "other_tokens_per_s": theirs.tokens_s,
        "ratio": one.ratio.value,
        "ratio_low": one.ratio.low,
        "ratio_high": one.ratio.high,
        "prompts": ours.prompts,
        "candidate_nodes_per_request": ours.nodes_per_request,
        "other_nodes_per_request": theirs.nodes_per_request,
        "candidate_share_modelled": ours.modelled,
        "other_share_modelled": theirs.modelled,
        "candidate_share_clamped": ours.clamped,
        "other_share_clamped": theirs.clamped,
        "beyond_table": str(one.beyond_table).lower(),
    }


def _overall(plan: Plan, one: Overall) -> dict[str, Any]:
    return {
        "profile": one.deployment.profile,
        "trace": one.deployment.trace,
        "cells": one.cells,
        "candidate": plan.candidate.policy,
        "against": one.against,
        "best_other_by_split": one.best_by,
        "other": one.other,
        "ratio": one.ratio.value,
        "ratio_low": one.ratio.low,
        "ratio_high": one.ratio.high,
        "worst_ratio": one.worst,
    }
