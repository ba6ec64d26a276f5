"""`tournament.csv`, a line for each cell and rule, and the means of it: over a deployment's cells,
and over all cells by rival.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from simulator.studies.contest.plan import ContestPlan, Deployment
from simulator.studies.contest.standings import (
    REPORT,
    Compared,
    Everywhere,
    Overall,
    Versus,
)
from simulator.studies.report import csv_text, ends, span, write_texts
from traces.common.intervals import Interval
from traces.common.table import Notes, Part, Table, emit

CELLS, OVERALL, RIVALS = (f"tournament{end}.csv" for end in ("", "_overall", "_rivals"))
WORST = 5  # cells listed
MEANS = ["geometric mean over", "other", "chosen on", "ratio", "95 % interval", "worst", "which"]
MARGIN = 0.99  # of non-inferiority


def write_tables(folder: Path, found: Compared) -> None:
    """All files; units are in the columns' names, ratios are candidate over other."""
    candidate = found.plan.candidate.policy
    tables = {
        CELLS: [_cell(candidate, one) for one in found.cells],
        OVERALL: [_overall(candidate, one) for one in found.overall],
        RIVALS: [{"candidate": candidate, **asdict(one)} for one in found.everywhere],
    }
    write_texts(folder, {name: csv_text(rows) for name, rows in tables.items()})


def _cell(candidate: str, one: Versus) -> dict[str, Any]:
    cell, both = one.cell, {"candidate": one.candidate, "other": one.score}

    def sides(name: str, value) -> dict[str, Any]:
        return {f"{side}_{name}": value(score) for side, score in both.items()}

    return {
        "profile": cell.deployment.profile,
        "trace": cell.deployment.trace,
        "domain": cell.domain,
        "max_concurrency": cell.concurrency,
        "candidate": candidate,
        "candidate_tokens_per_s": one.candidate.pooled,
        "best_other_by_split": one.best_by,
        "other": one.other.policy,
        "other_setting": one.other.setting,
        "other_tokens_per_s": one.score.pooled,
        **_ratio_columns(one.ratio),
        "prompts": one.candidate.prompts,
        **sides("nodes_per_request", lambda score: score.mean("nodes")),
        **sides("share_modelled", lambda score: score.share("modelled", window=True)),
        **sides("share_clamped", lambda score: score.share("clamped", window=True)),
        "beyond_table": str(one.beyond_table).lower(),
    }


def _overall(candidate: str, one: Overall) -> dict[str, Any]:
    return {
        "profile": one.deployment.profile,
        "trace": one.deployment.trace,
        "cells": one.cells,
        "candidate": candidate,
        "against": one.against,
        "best_other_by_split": one.best_by,
        "other": one.other,
        **_ratio_columns(one.ratio),
        "worst_ratio": one.worst,
    }


def _ratio_columns(ratio: Interval) -> dict[str, float | None]:
    return {"ratio": ratio.value, **ends("ratio", ratio)}


def print_tournament(found: Compared) -> None:
    """Ratios are candidate over the best other, tokens per second, with 95 % intervals."""
    emit(_parts(found), "table")


def _parts(found: Compared) -> Iterator[Part]:
    harsh = [one for one in found.cells if one.best_by == REPORT]
    for deployment in found.plan.deployments:
        yield _by_load(found.plan, deployment, harsh)
        yield _means([one for one in found.overall if one.deployment is deployment])
    yield Notes([("", _legend(harsh))])
    yield _worst(harsh)
    yield _rivals(found.everywhere)
    yield Notes([("", _summary(harsh))])


def _by_load(plan: ContestPlan, deployment: Deployment, cells: Sequence[Versus]) -> Table:
    own = [one for one in cells if one.cell.deployment is deployment]
    rows = []
    for domain in dict.fromkeys(one.cell.domain for one in own):
        row = {one.cell.concurrency: one for one in own if one.cell.domain == domain}
        rows.append([domain, *(_ratio(row[load]) for load in plan.concurrency)])
    return Table(
        ["domain", *map(str, plan.concurrency)],
        rows,
        caption=f"{deployment.trace} on {deployment.profile}: {plan.candidate.policy} / best tuned "
        "other of the cell itself, tokens per second",
    )


def _ratio(one: Versus) -> str:
    return f"{one.ratio.value:.3f}{_sign(one.ratio)}{'m' if one.beyond_table else ' '}"


def _sign(ratio: Interval) -> str:
    """Which side of 1 the interval is on."""
    if ratio.low is None or ratio.low <= 1 <= ratio.high:
        return " "
    return "+" if ratio.low > 1 else "-"


def _legend(cells: Sequence[Versus]) -> str:
    text = "+ and -: the 95 % interval over prompts is above or below 1"
    if any(one.beyond_table for one in cells):
        text += "; m: steps of either lie beyond the measured table"
    return text


def _means(lines: Sequence[Overall]) -> Table:
    rows = [
        [
            one.cells,
            one.against,
            one.best_by,
            f"{one.ratio.value:.3f}",
            span(one.ratio),
            f"{one.worst:.3f}",
            one.other,
        ]
        for one in lines
    ]
    return Table(MEANS, rows, align="lllrrrl")


def _worst(cells: Sequence[Versus]) -> Table:
    rows = []
    for one in sorted(cells, key=lambda one: one.ratio.value)[:WORST]:
        cell, other = one.cell, one.other
        where = f"{cell.deployment.profile}, {cell.deployment.trace}, {cell.domain}"
        place = f"{where}, concurrency {cell.concurrency}"
        ratio = f"{one.ratio.value:.3f}", span(one.ratio)
        rows.append([place, *ratio, f"{other.policy} {other.setting}"])
    return Table(["worst cells", "ratio", "95 % interval", "other"], rows, align="lrrl")


def _rivals(lines: Sequence[Everywhere]) -> Table:
    rows = [[one.other, str(one.cells), f"{one.ratio:.3f}", f"{one.worst:.3f}"] for one in lines]
    return Table(["rival, tuned per load", "cells", "ratio", "worst"], rows)


def _summary(cells: Sequence[Versus]) -> str:
    """Of the cells' ratios to the best other of each."""
    values = [one.ratio.value for one in cells]
    below = sum(_sign(one.ratio) == "-" for one in cells)
    return (
        f"best other of every cell: geometric mean {geometric_mean(values):.3f}, {min(values):.3f} "
        f"to {max(values):.3f}; of {len(values)} cells {sum(v < 1 for v in values)} below 1 "
        f"({below} with the interval), {sum(v < MARGIN for v in values)} below {MARGIN:g}"
    )
