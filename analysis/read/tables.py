"""The parquet tables beside a run's summary, checked before anything is computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from traces.errors import InputError
from traces.strict_json import first_twice

STEPS, REQUESTS = "steps.parquet", "requests.parquet"
ROWS_PER_BYTE = 8  # times hardly ever repeat: a file that holds more rows was made to burst
LARGEST_S = 1e12


@dataclass(frozen=True, slots=True)
class Kind:
    """Accepted dtype kinds and range of a column; `missing`: NaN stands for what never was."""

    dtypes: str
    least: float
    most: float
    accepted: str
    missing: bool = False


FLAGS = Kind("b", 0, 1, "true or false")
WHOLE = Kind("iu", 0, 2**53, "whole numbers from 0")
COUNTS = Kind("iu", 1, 2**53, "whole numbers from 1")
SECONDS = Kind("f", 0, LARGEST_S, "finite seconds from 0")
SOME_SECONDS = Kind("f", 0, LARGEST_S, "seconds from 0, or none", missing=True)

_OF_STEPS = {
    "batch": COUNTS, "draft_nodes": WHOLE, "time_s": SECONDS, "step_s": SECONDS, "replica": WHOLE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the window's time of all replicas went."""

    steps: int  # that lie inside
    between_s: float  # between steps, with requests there: prompts are read
    idle_s: float  # no request there


def read_columns(
    path: Path, kinds: Mapping[str, Kind], what: str, rows: int | None = None
) -> pandas.DataFrame:
    """The columns of `kinds`, in the file's order or, with a column `request`, by its numbers.

    Args:
        what: the file holds, for messages. rows: that it must have; None: any.

    Raises:
        InputError: a file that is damaged, lacks a column, or holds what a column cannot.
    """
    import pyarrow
    from pyarrow import parquet

    if not path.is_file():  # a pipe might never end
        raise InputError(f"{path}: no regular file, expected {what} of a finished run")
    try:
        names = _names(path, rows, what)
        missing = [name for name in kinds if name not in names]
        if missing:
            raise InputError(
                f"{path}: no column {missing[0]}; accepted: a run made by this version"
            )
        order = ["request"] if "request" in names else []
        table = parquet.read_table(path, columns=[*dict.fromkeys([*kinds, *order])])
        table = table.sort_by("request") if order else table  # a long run's come as they end
        columns = {name: table[name].to_numpy() for name in (*kinds, *order)}
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
        raise InputError(f"{path}: unreadable, expected {what} of a finished run") from error
    for name, kind in kinds.items():
        _check(path, name, columns[name], kind)
    if order:
        _check_numbers(path, columns["request"])
    return pandas.DataFrame({name: columns[name] for name in kinds})


def _names(path: Path, rows: int | None, what: str) -> list[str]:
    from pyarrow import parquet

    metadata = parquet.read_metadata(path)
    most = ROWS_PER_BYTE * path.stat().st_size
    if metadata.num_rows > most or rows not in (None, metadata.num_rows):
        wanted = f"at most {most}" if rows is None else str(rows)
        raise InputError(f"{path}: {metadata.num_rows} rows, expected {what} of a run, {wanted}")
    names = list(metadata.schema.to_arrow_schema().names)
    twice = first_twice(names)
    if twice is not None:
        raise InputError(f"{path}: column {twice!r:.60} is there twice; accepted: once")
    return names


def _check(path: Path, name: str, column: np.ndarray, kind: Kind) -> None:
    if column.dtype.kind not in kind.dtypes:
        raise InputError(
            f"{path}: column {name} holds {column.dtype}, without gaps expected {kind.accepted}"
        )
    inside = (column >= kind.least) & (column <= kind.most)
    bad = ~inside & ~np.isnan(column) if kind.missing else ~inside
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"{path}: row {row}, column {name}: {column[row]}, expected {kind.accepted}"
        )


def _check_numbers(path: Path, request: np.ndarray) -> None:
    """Sorted, the N requests are 0 to N - 1: none is there twice, and none is missing."""
    wrong = np.flatnonzero(request != np.arange(len(request)))
    if len(wrong):
        raise InputError(
            f"{path}: column request holds {request[wrong[0]]!s:.40} as number {wrong[0]} by size, "
            f"expected 0 to {len(request) - 1}, each once"
        )


def read_steps(path: Path, *names: str) -> pandas.DataFrame | None:
    """Columns of the steps beside the summary at `path`; None where there is no such file."""
    file = path.with_name(STEPS)
    if not file.is_file():
        return None
    return read_columns(file, {name: _OF_STEPS[name] for name in names}, "the steps")


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
    stays = read_columns(file, kinds, "the requests", data["num_prompts"])
    own = stays["replica"] if replicas > 1 else pandas.Series(0, stays.index)
    length_s = window[1] - window[0]
    return sum(length_s - _covered_s(stays[own == one], *window) for one in range(replicas))


def _covered_s(stays: pandas.DataFrame, low_s: float, high_s: float) -> float:
    """Seconds from `low_s` to `high_s` in which at least one of the stays lasts."""
    known = stays[["arrival_s", "finish_s"]].dropna()  # rejected requests never stay
    known = known.clip(low_s, high_s).sort_values("arrival_s", kind="stable")
    begin_s, end_s = known["arrival_s"].to_numpy(), known["finish_s"].to_numpy()
    before = np.maximum.accumulate(np.append(low_s, end_s))[:-1]  # latest end of those before
    return float((end_s - np.maximum(begin_s, before)).clip(0).sum())
