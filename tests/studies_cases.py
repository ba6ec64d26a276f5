"""A run's result by hand, for tests of what studies make of results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulator.studies.runs import Result

SHARES = {"measured": 0.75, "interpolated": 0.0, "modelled": 0.25, "clamped": 0.0}
OPEN = Result(  # of two prompts
    clients=None, requests=30, judged=3, rejected=0, full=False, seconds=9.5, stay_s=0.4,
    growth=-0.01, growing=False, arriving=4.0, request_throughput=3.9, output_throughput=390.0,
    levels_ms={"ttft": 20.0, "tpot": 2.0, "e2el": 30.0, "itl": None}, missed={"ttft": 0.1},
    most_running=3, shares=SHARES, window_shares=SHARES, nodes=3.5, drafting=1.0, prompts=[1, 2],
    tokens=[10.0, 20.0], inside_s=[0.1, 0.2], asked=[1.0, 2.0], good=[1.0, 1.0],
)  # fmt: skip


def open_loop(**changes: Any) -> Result:
    """`OPEN`, changed."""
    return replace(OPEN, **changes)


def closed_loop(
    tokens: list[float], seconds: list[float], good: list[float] | None = None, **changes: Any
) -> Result:
    """Two clients in a window of sum(seconds) / 2; every prompt was judged once."""
    count, window_s = len(tokens), sum(seconds) / 2
    own = {
        "clients": 2, "judged": count, "full": True, "nodes": 3.0, "prompts": list(range(count)),
        "request_throughput": count / window_s, "tokens": tokens, "inside_s": seconds,
        "asked": [1.0] * count, "good": good or [1.0] * count,
    }  # fmt: skip
    return open_loop(**(own | changes))
