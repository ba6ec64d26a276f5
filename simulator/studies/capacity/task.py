"""`task=capacity`: search, print, write."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.policies.loading import policy_name
from simulator.results.printing import short_path
from simulator.studies.capacity.answer import answer_of, notes
from simulator.studies.capacity.plan import load_job, read_plan
from simulator.studies.capacity.report import JSON, print_capacity, write
from simulator.studies.capacity.seek import NAME, seek


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Search, print, and write `capacity.json` and `capacity.csv` into `folder`.

    Every trial is in `capacity.jsonl` there at once; what it holds is not run again.

    Raises:
        InputError: see `read_plan`; what the policy refuses.
    """
    plan, begun = read_plan(cfg), time.monotonic()
    try:
        sought, played = seek(plan, folder)
    except KeyboardInterrupt:
        kept, where = short_path(folder / NAME), short_path(folder)
        print(f"kept in {kept}; to go on: hydra.run.dir={where}", file=sys.stderr)
        raise
    job, answer = load_job(plan, plan.start, plan.seeds[0]), answer_of(plan, sought)
    said = notes(plan, job, sought, answer)
    write(folder, plan, job, sought, answer, said)
    print_capacity(plan, policy_name(cfg["policy"]), sought, answer, said)
    where, seconds = short_path(folder / JSON), time.monotonic() - begun
    print(f"{played} runs in {seconds:.0f} s, results in {where}", flush=True)
