"""`task=claims`: replay, play, judge, print, and write into the run's folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from simulator.progress import Progress
from simulator.results.printing import short_path
from simulator.studies.claims import loads, rounds
from simulator.studies.claims.bench import Bench
from simulator.studies.claims.claims import CLAIMS, Plan, read_plan
from simulator.studies.claims.report import CSV, print_claims, write
from simulator.studies.claims.verdict import Cell, rows_of

Job = Callable[[], Sequence[Cell | str]]


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Print the claims with their numbers, and write `claims.csv` and `claims.json`.

    Raises:
        InputError: see `read_plan`.
    """
    plan, begun = read_plan(cfg), time.monotonic()
    cells, notes = compare(plan)
    judged = [(claim, rows_of(claim, cells)) for claim in CLAIMS]
    found = [(claim, rows) for claim, rows in judged if rows]
    write(folder, plan, found, notes)
    print_claims(found)
    for note in notes:
        print(f"note: {note}, left out there")
    seconds = time.monotonic() - begun
    where = short_path(folder / CSV)
    print(f"{len(cells)} comparisons in {seconds:.0f} s, results in {where}", flush=True)


def compare(plan: Plan) -> tuple[list[Cell], list[str]]:
    """All comparisons, and why others could not be made."""
    jobs = [job for trace in plan.traces for job in _jobs(Bench(plan, trace))]
    cells: list[Cell] = []
    notes: dict[str, None] = {}
    with Progress(len(jobs), "comparisons") as progress:
        for done, job in enumerate(jobs):
            progress.update(done)
            for one in job():
                if isinstance(one, str):
                    notes.setdefault(one)
                else:
                    cells.append(one)
    return cells, list(notes)


def _jobs(bench: Bench) -> Iterator[Job]:
    """Work on one recording, one order after the other."""
    yield lambda: list(rounds.parent_against_marginal(bench))
    yield lambda: list(rounds.threshold_against_fixed(bench, loads.threshold_order(bench)))
    for match in loads.matches(bench):
        yield partial(_played, bench, match)


def _played(bench: Bench, match: loads.Match) -> list[Cell | str]:
    return [loads.compared(bench, match)]
