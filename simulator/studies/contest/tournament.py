"""`task=tournament`: tune the rivals, play the report split, compare."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.results.printing import short_path
from simulator.studies.contest.plan import Deployment, Plan, read_plan
from simulator.studies.contest.report import CELLS, print_tournament, write_tables
from simulator.studies.contest.scores import Scores
from simulator.studies.contest.standings import REPORT, TUNING, Standings, everywhere, report_pairs
from simulator.studies.contest.tuning import Field, tune, tuning_pairs
from simulator.studies.league import play_all
from simulator.studies.store import Store


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Play, print, and write three tables (`simulator.studies.contest.report`) into `folder`.

    Every finished simulation is in `tournament.jsonl` there at once; what it holds is not played
    again.

    Raises:
        InputError: see `read_plan`; a candidate that refuses a recording or a profile.
    """
    plan, store = read_plan(cfg), Store(folder)
    begun = time.monotonic()
    try:
        standings, played = _play(plan, store)
    except KeyboardInterrupt:
        where = short_path(folder)
        print(f"kept in {short_path(store.path)}; to go on: hydra.run.dir={where}", file=sys.stderr)
        raise
    cells = [
        one.versus(cell, best_by)
        for one in standings
        for cell in one.cells()
        for best_by in (TUNING, REPORT)
    ]
    overall = [line for one in standings for line in one.overall()]
    rivals = everywhere(standings)
    write_tables(folder, plan, cells, overall, rivals)
    print_tournament(plan, cells, overall, rivals)
    _print_notes(standings)
    where, seconds = short_path(folder / CELLS), time.monotonic() - begun
    print(f"{played} simulations in {seconds:.0f} s, results in {where}", flush=True)


def _play(plan: Plan, store: Store) -> tuple[list[Standings], int]:
    scores = Scores(plan, store)
    played = play_all(scores.needed(tuning_pairs(plan)), store, plan.workers)
    fields: list[tuple[Deployment, Field]] = [
        (deployment, tune(plan, scores, deployment)) for deployment in plan.deployments
    ]
    standings = [Standings(plan, scores, *one) for one in fields]
    played += play_all(scores.needed(report_pairs(plan, fields)), store, plan.workers)
    return standings, played


def _print_notes(standings: list[Standings]) -> None:
    refused = {}
    for one in standings:
        for name, reason in one.field.refused.items():
            refused.setdefault(f"{name}: {reason}")
    for line in refused:
        print(f"note: {line}, left out there")
