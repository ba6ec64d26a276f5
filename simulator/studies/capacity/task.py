"""`task=capacity`: search, print, write."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.studies.capacity.answer import answer_of
from simulator.studies.capacity.plan import read_plan
from simulator.studies.capacity.report import JSON, print_capacity, write
from simulator.studies.capacity.search import seek
from simulator.studies.report import resumable, say_done
from simulator.studies.store import Store

load = read_plan


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Search, print, and write `capacity.json` and `capacity.csv` into `folder`.

    Every trial is in `capacity.jsonl` there at once; what it holds is not run again.

    Raises:
        InputError: see `read_plan`; what the policy refuses.
    """
    begun, plan, store = time.monotonic(), read_plan(cfg), Store(folder, "capacity")
    with resumable(store.path):
        sought, played = seek(plan, store)
    answer = answer_of(plan, plan.job(), sought)
    write(folder, answer)
    print_capacity(answer)
    say_done(played, "runs", begun, folder / JSON)
