"""`task=recommend`: tune every policy for the load, play, rank, and say what to run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.studies.contest.plan import read_recommend_plan
from simulator.studies.contest.ranking import rankings, recommended
from simulator.studies.contest.recommend_report import JSON, print_report, write
from simulator.studies.contest.scores import Contest
from simulator.studies.report import resumable, say_done
from simulator.studies.store import Store

load = read_recommend_plan


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Recommend, print, and write `recommend.json` and `recommend.md` into `folder`.

    Every finished run is in `recommend.jsonl` there at once; what it holds is not run again.

    Raises:
        InputError: see `read_recommend_plan`; no policy that plays.
    """
    begun = time.monotonic()
    contest = Contest(read_recommend_plan(cfg), Store(folder, "recommend"))
    with resumable(contest.store.path):
        found = rankings(contest)
    recommendation = recommended(contest, found)
    write(folder, recommendation)
    print_report(recommendation)
    say_done(contest.played, "runs", begun, folder / JSON)
