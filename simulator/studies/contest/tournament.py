"""`task=tournament`: tune the rivals, play the report split, compare the candidate with them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.studies.contest.plan import read_plan
from simulator.studies.contest.scores import Contest
from simulator.studies.contest.standings import played
from simulator.studies.contest.tournament_report import CELLS, print_tournament, write_tables
from simulator.studies.report import resumable, say_done
from simulator.studies.store import Store

load = read_plan


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Play, print, and write three tables (`contest.tournament_report`) into `folder`.

    Every finished simulation is in `tournament.jsonl` there at once; what it holds is not played
    again.

    Raises:
        InputError: see `read_plan`; a candidate that refuses a recording or a profile.
    """
    begun, contest = time.monotonic(), Contest(read_plan(cfg), Store(folder, "tournament"))
    with resumable(contest.store.path):
        found = played(contest)
    write_tables(folder, found)
    print_tournament(found)
    for name, reason in contest.refused.items():
        print(f"note: {name}: {reason}, left out there")
    say_done(contest.played, "simulations", begun, folder / CELLS)
