"""Reading the ``steps.parquet`` beside a summary."""

from __future__ import annotations

import numpy as np

from analysis.columns import COUNTS, SECONDS, WHOLE, read_columns
from analysis.summaries import Summary

FILE_NAME = "steps.parquet"
KINDS = {"batch": COUNTS, "draft_nodes": WHOLE, "time_s": SECONDS, "step_s": SECONDS}


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
    window = run.data.get("window") or {}
    if not {"start_s", "end_s"} <= set(window):
        return None
    steps = read_steps(run, "time_s", "step_s")
    if steps is None:
        return None
    begin_s = steps["time_s"]
    inside = (begin_s >= window["start_s"]) & (begin_s + steps["step_s"] <= window["end_s"])
    return int(np.count_nonzero(inside))
