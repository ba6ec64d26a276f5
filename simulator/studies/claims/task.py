"""`task=claims`: replay, play, judge, print, and write into the run's folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simulator.studies.claims import loads, rounds
from simulator.studies.claims.claims import CLAIMS, Bench, ClaimsPlan, read_plan
from simulator.studies.claims.report import CSV, print_claims, write
from simulator.studies.claims.verdict import Comparison, rows_of
from simulator.studies.report import resumable, say_done
from simulator.studies.store import Store, play_all

load = read_plan


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Print the claims with their numbers, and write `claims.csv` and `claims.json`.

    Every finished simulation is in `claims.jsonl` there at once; what it holds is not played again.

    Raises:
        InputError: see `read_plan`.
    """
    plan, store, begun = read_plan(cfg), Store(folder, "claims"), time.monotonic()
    with resumable(store.path):
        compared = list(_compared(plan, store))
    notes = list(dict.fromkeys(one for one in compared if isinstance(one, str)))
    cells = [one for one in compared if isinstance(one, Comparison)]
    judged = [(claim, rows_of(claim, cells)) for claim in CLAIMS]
    found = [(claim, rows) for claim, rows in judged if rows]
    write(folder, plan, found, notes)
    print_claims(found)
    for note in notes:
        print(f"note: {note}, left out there")
    say_done(len(cells), "comparisons", begun, folder / CSV)


def _compared(plan: ClaimsPlan, store: Store) -> Iterator[Comparison | str]:
    """All comparisons, and why others could not be made; one recording after the other."""
    for name in plan.traces:
        bench = Bench(plan, name)
        yield from rounds.parent_against_marginal(bench)
        yield from rounds.threshold_against_fixed(bench, loads.threshold_order(bench))
        yield from _played(bench, store)


def _played(bench: Bench, store: Store) -> list[Comparison | str]:
    matches = [(match, match.sides()) for match in loads.matches(bench)]
    runs, keys = {}, []
    for match, nodes in matches:
        where = {"recording": bench.name, "profile": match.where.profile}
        both = [bench.run(node, match.where.profile, match.concurrency) for node in nodes]
        keys.append([one.key for one in both])
        for key, one, node in zip(keys[-1], both, nodes, strict=True):
            words = {"policy": node.get("name"), **where, "concurrency": match.concurrency}
            runs[key] = one, words
    play_all(runs, store)
    return [
        loads.compared(bench, match, nodes, [store[key] for key in own])
        for (match, nodes), own in zip(matches, keys, strict=True)
    ]
