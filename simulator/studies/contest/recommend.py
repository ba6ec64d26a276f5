"""`task=recommend`: tune, play, rank, print, write."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.engine.run import load
from simulator.results.printing import short_path
from simulator.studies.contest.command_line import command_of
from simulator.studies.contest.notes import notes
from simulator.studies.contest.plan import RecommendPlan, read_recommend_plan
from simulator.studies.contest.report import JSON, Report, markdown, print_report, write
from simulator.studies.contest.tuning import (
    NAME,
    Contest,
    Ranking,
    best_load,
    open_contest,
    rankings,
)
from traces.common.errors import InputError


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Recommend, print, and write `recommend.json` and `recommend.md` into `folder`.

    Every finished run is in `recommend.jsonl` there at once; what it holds is not run again.

    Raises:
        InputError: see `read_plan`; no policy that plays.
    """
    plan, begun = read_recommend_plan(cfg), time.monotonic()
    contest = open_contest(plan, folder)
    try:
        found = rankings(contest)
    except KeyboardInterrupt:
        kept, where = short_path(folder / NAME), short_path(folder)
        print(f"kept in {kept}; to go on: hydra.run.dir={where}", file=sys.stderr)
        raise
    report = _report(plan, contest, found)
    write(folder, report, markdown(report))
    print_report(report)
    where, seconds = short_path(folder / JSON), time.monotonic() - begun
    print(f"{contest.played} runs in {seconds:.0f} s, results in {where}", flush=True)


def _report(plan: RecommendPlan, contest: Contest, found: list[Ranking]) -> Report:
    if not found:
        reason = next(iter(contest.refused.items()))
        raise InputError(
            f"recommend.policies: none of them plays here; accepted: at least one that does "
            f"({reason[0]}: {reason[1]})"
        )
    chosen = best_load(plan, found)
    entrant = chosen.best.score.entrant
    config = plan.config_of(entrant, plan.split_report, chosen.concurrency, plan.seeds[0])
    job = load(config)
    said = notes(contest, job, found, chosen)
    return Report(plan, job, tuple(found), chosen, tuple(said), command_of(config, plan.seeds))
