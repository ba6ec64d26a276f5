"""Reading the ``steps.parquet`` beside a summary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.summaries import Summary
from traces.common.columns import COUNTS, SECONDS, SOME_SECONDS, WHOLE, read_columns

FILE_NAME = "steps.parquet"
KINDS = {
    "batch": COUNTS,
    "draft_nodes": WHOLE,
    "time_s": SECONDS,
    "step_s": SECONDS,
    "replica": WHOLE,
}
_REQUESTS = "requests.parquet"
_STAYS = {"arrival_s": SOME_SECONDS, "finish_s": SOME_SECONDS, "replica": WHOLE}


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the window's time of all replicas went."""

    steps: int  # that lie inside
    between_s: float  # between steps, with requests there: prompts are read
    idle_s: float  # no request there


def read_steps(run: Summary, *names: str) -> dict[str, np.ndarray] | None:
    """The columns of `KINDS` with these names, (S,) each; None where there is no such file.

    Raises:
        InputError: a file that is damaged, or holds what a column cannot.
    """
    path = run.path.with_name(FILE_NAME)
    if not path.is_file():
        return None
    return read_columns(path, {name: KINDS[name] for name in names}, "the steps")


def steps_in_window(run: Summary) -> int | None:
    """How many steps lie in the run's window; None where files or keys do not say."""
    window, steps = _window(run), None
    if window is not None:
        steps = read_steps(run, "time_s", "step_s")
    return None if steps is None else int(np.count_nonzero(_inside(steps, *window)))


def spent_in_window(run: Summary) -> Spent | None:
    """By the steps' own times; None where files or keys do not say.

    Idle is what no request's stay covers. A closed loop of one server never is.
    """
    window, replicas = _window(run), (run.data.get("server") or {}).get("replicas") or 1
    if window is None:
        return None
    own = ("replica",) if replicas > 1 else ()
    steps = read_steps(run, "time_s", "step_s", *own)
    idle_s = _idle_s(run, *window, replicas)
    if steps is None or idle_s is None:
        return None
    start_s, end_s = window
    begin_s, step_s = steps["time_s"], steps["step_s"]
    covered = np.minimum(begin_s + step_s, end_s) - np.maximum(begin_s, start_s)
    between_s = replicas * (end_s - start_s) - float(covered.clip(0).sum()) - idle_s
    inside = int(np.count_nonzero(_inside(steps, *window)))
    return Spent(inside, max(0.0, between_s), idle_s)


def _window(run: Summary) -> tuple[float, float] | None:
    window = run.data.get("window") or {}
    ends = window.get("start_s"), window.get("end_s")
    return None if None in ends else ends


def _inside(steps: dict[str, np.ndarray], start_s: float, end_s: float) -> np.ndarray:
    begin_s = steps["time_s"]
    return (begin_s >= start_s) & (begin_s + steps["step_s"] <= end_s)


def _idle_s(run: Summary, start_s: float, end_s: float, replicas: int) -> float | None:
    """Seconds of the window in which a replica has no request, over all replicas."""
    if run.closed_loop and replicas == 1:
        return 0.0
    path = run.path.with_name(_REQUESTS)
    if not path.is_file():
        return None
    kinds = {name: kind for name, kind in _STAYS.items() if name != "replica" or replicas > 1}
    stays = read_columns(path, kinds, "the requests", run.data["num_prompts"])
    replica = stays.get("replica", np.zeros(len(stays["arrival_s"]), np.int64))
    found = 0.0
    for one in range(replicas):
        own = replica == one
        stay_s = _covered_s(stays["arrival_s"][own], stays["finish_s"][own], start_s, end_s)
        found += end_s - start_s - stay_s
    return found


def _covered_s(begin_s: np.ndarray, end_s: np.ndarray, low_s: float, high_s: float) -> float:
    """Seconds from `low_s` to `high_s` in which at least one of (N,) stays lasts."""
    known = ~(np.isnan(begin_s) | np.isnan(end_s))  # rejected requests never stay
    begin_s, end_s = begin_s[known].clip(low_s, high_s), end_s[known].clip(low_s, high_s)
    order = np.argsort(begin_s, kind="stable")
    begin_s, end_s = begin_s[order], end_s[order]
    before = np.maximum.accumulate(np.append(low_s, end_s))[:-1]  # latest end of those before
    return float((end_s - np.maximum(begin_s, before)).clip(0).sum())
