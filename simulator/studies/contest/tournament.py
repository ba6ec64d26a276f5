"""`task=tournament`: tune the rivals, play the report split, compare the candidate with them.

Three tables: `tournament.csv`, a line for each cell and rule, and the means of it: over a
deployment's cells, and over all cells by rival.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from simulator.studies.contest.plan import ContestPlan, Deployment, read_plan
from simulator.studies.contest.scores import Contest
from simulator.studies.contest.standings import REPORT, Compared, Overall, Versus, played
from simulator.studies.report import BEYOND, SIGNS, csv_text, sign, span, with_ends, write_texts
from simulator.studies.store import Store
from traces.common.table import Notes, Part, Table, emit

CELLS, OVERALL, RIVALS = (f"tournament{end}.csv" for end in ("", "_overall", "_rivals"))
WORST = 5  # cells listed
MEANS = ["geometric mean over", "other", "chosen on", "ratio", "95 % interval", "worst", "which"]
MARGIN = 0.99  # of non-inferiority

load = read_plan


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Play, print, and write three tables into `folder`.

    Every finished simulation is in `tournament.jsonl` there at once; what it holds is not played
    again.

    Raises:
        InputError: see `read_plan`; a candidate that refuses a recording or a profile.
    """
    plan = read_plan(cfg)
    with Store(folder, "tournament") as store:
        contest = Contest(plan, store)
        found = played(contest)
    candidate = plan.candidate.policy
    tables = {  # units are in the columns' names, ratios are candidate over other
        CELLS: [_cell(candidate, one) for one in found.cells],
        OVERALL: [_overall(candidate, one) for one in found.overall],
        RIVALS: [{"candidate": candidate, **one} for one in found.everywhere],
    }
    write_texts(folder, {name: csv_text(rows) for name, rows in tables.items()})
    emit(_parts(found), "table")
    for name, reason in contest.refused.items():
        print(f"note: {name}: {reason}, left out there")
    store.say_done(contest.played, "simulations", folder / CELLS)


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
        **with_ends("ratio", one.ratio),
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
        **with_ends("ratio", one.ratio),
        "worst_ratio": one.worst,
    }


def _parts(found: Compared) -> Iterator[Part]:
    """Ratios are candidate over the best other, tokens per second, with 95 % intervals."""
    harsh = [one for one in found.cells if one.best_by == REPORT]
    for deployment in found.plan.deployments:
        yield _by_load(found.plan, deployment, harsh)
        means = [
            [
                one.cells,
                one.against,
                one.best_by,
                f"{one.ratio.value:.3f}",
                span(one.ratio),
                f"{one.worst:.3f}",
                one.other,
            ]
            for one in found.overall
            if one.deployment is deployment
        ]
        yield Table(MEANS, means, align="lllrrrl")
    yield Notes([("", SIGNS + (BEYOND if any(one.beyond_table for one in harsh) else ""))])
    yield _worst(harsh)
    rows = [
        [one["other"], str(one["cells"]), f"{one['ratio']:.3f}", f"{one['worst']:.3f}"]
        for one in found.everywhere
    ]
    yield Table(["rival, tuned per load", "cells", "ratio", "worst"], rows)
    values = [one.ratio.value for one in harsh]
    below = sum(sign(one.ratio) == "-" for one in harsh)
    summary = (
        f"best other of every cell: geometric mean {geometric_mean(values):.3f}, {min(values):.3f} "
        f"to {max(values):.3f}; of {len(values)} cells {sum(v < 1 for v in values)} below 1 "
        f"({below} with the interval), {sum(v < MARGIN for v in values)} below {MARGIN:g}"
    )
    yield Notes([("", summary)])


def _by_load(plan: ContestPlan, deployment: Deployment, cells: Sequence[Versus]) -> Table:
    rows: dict[str, dict[int, str]] = {}
    for one in cells:
        if one.cell.deployment is deployment:
            mark = sign(one.ratio) + ("m" if one.beyond_table else " ")
            row = rows.setdefault(one.cell.domain, {})
            row[one.cell.concurrency] = f"{one.ratio.value:.3f}{mark}"
    return Table(
        ["domain", *map(str, plan.concurrency)],
        [[domain, *(row[load] for load in plan.concurrency)] for domain, row in rows.items()],
        caption=f"{deployment.trace} on {deployment.profile}: {plan.candidate.policy} / best tuned "
        "other of the cell itself, tokens per second",
    )


def _worst(cells: Sequence[Versus]) -> Table:
    rows = []
    for one in sorted(cells, key=lambda one: one.ratio.value)[:WORST]:
        cell, other = one.cell, one.other
        where = f"{cell.deployment.profile}, {cell.deployment.trace}, {cell.domain}"
        place = f"{where}, concurrency {cell.concurrency}"
        ratio = f"{one.ratio.value:.3f}", span(one.ratio)
        rows.append([place, *ratio, f"{other.policy} {other.setting}"])
    return Table(["worst cells", "ratio", "95 % interval", "other"], rows, align="lrrl")
