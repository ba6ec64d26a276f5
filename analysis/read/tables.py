"""The parquet tables beside a run's summary, and where a window's time went by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from traces.common.columns import COUNTS, SECONDS, SOME_SECONDS, WHOLE, Kind, read_columns

STEPS, REQUESTS = "steps.parquet", "requests.parquet"
_OF_STEPS = {
    "batch": COUNTS, "draft_nodes": WHOLE, "time_s": SECONDS, "step_s": SECONDS, "replica": WHOLE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the window's time of all replicas went."""

    steps: int  # that lie inside
    between_s: float  # between steps, with requests there: prompts are read
    idle_s: float  # no request there


def read_frame(
    path: Path, kinds: Mapping[str, Kind], what: str, rows: int | None = None
) -> pandas.DataFrame:
    """The columns of `kinds`; see `traces.common.columns.read_columns`."""
    return pandas.DataFrame(read_columns(path, kinds, what, rows))


def read_steps(path: Path, *names: str) -> pandas.DataFrame | None:
    """Columns of the steps beside the summary at `path`; None where there is no such file."""
    file = path.with_name(STEPS)
    if not file.is_file():
        return None
    return read_frame(file, {name: _OF_STEPS[name] for name in names}, "the steps")


def window_of(data: Mapping[str, Any]) -> tuple[float, float] | None:
    """Seconds at which a run's window starts and ends; None where its summary does not say."""
    window = data.get("window") or {}
    ends = window.get("start_s"), window.get("end_s")
    return None if None in ends else ends


def steps_in_window(path: Path, data: Mapping[str, Any]) -> int | None:
    """How many steps lie in the run's window; None where files or keys do not say."""
    window = window_of(data)
    steps = read_steps(path, "time_s", "step_s") if window else None
    return None if steps is None else _inside(steps, *window)


def spent_in_window(path: Path, data: Mapping[str, Any]) -> Spent | None:
    """By the steps' own times; None where files or keys do not say.

    Idle is what no request's stay covers. A closed loop of one server never is.
    """
    window, replicas = window_of(data), (data.get("server") or {}).get("replicas") or 1
    if window is None:
        return None
    steps = read_steps(path, "time_s", "step_s", *(("replica",) if replicas > 1 else ()))
    idle_s = _idle_s(path, data, window, replicas)
    if steps is None or idle_s is None:
        return None
    start_s, end_s = window
    ends = (steps["time_s"] + steps["step_s"]).clip(upper=end_s)
    covered_s = (ends - steps["time_s"].clip(lower=start_s)).clip(lower=0).sum()
    between_s = replicas * (end_s - start_s) - covered_s - idle_s
    return Spent(_inside(steps, start_s, end_s), max(0.0, between_s), idle_s)


def _inside(steps: pandas.DataFrame, start_s: float, end_s: float) -> int:
    ends = steps["time_s"] + steps["step_s"]
    return int(((steps["time_s"] >= start_s) & (ends <= end_s)).sum())


def _idle_s(path: Path, data: Mapping[str, Any], window, replicas: int) -> float | None:
    """Seconds of the window in which a replica has no request, over all replicas."""
    if data["request_rate"] in ("inf", float("inf")) and replicas == 1:
        return 0.0
    file = path.with_name(REQUESTS)
    if not file.is_file():
        return None
    kinds = {"arrival_s": SOME_SECONDS, "finish_s": SOME_SECONDS}
    kinds |= {"replica": WHOLE} if replicas > 1 else {}
    stays = read_frame(file, kinds, "the requests", data["num_prompts"])
    idle_s, (low_s, high_s) = 0.0, window
    for one in range(replicas):
        own = stays[stays["replica"] == one] if replicas > 1 else stays
        known = own[["arrival_s", "finish_s"]].dropna()  # rejected requests never stay
        known = known.clip(low_s, high_s).sort_values("arrival_s", kind="stable")
        begin_s, end_s = known["arrival_s"].to_numpy(), known["finish_s"].to_numpy()
        before = np.maximum.accumulate(np.append(low_s, end_s))[:-1]  # latest end of those before
        idle_s += high_s - low_s - float((end_s - np.maximum(begin_s, before)).clip(0).sum())
    return idle_s
