"""Rows of a file made to fit a run: lengths clipped, time scaled, gaps cut, all of it counted.

Nothing here changes a file's rate without saying so: `Scaled.report` has the rate of the file,
the rate after scaling and the rate after gaps were cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from traces.common.errors import InputError
from traces.workloads.cells import MOST_TOKENS
from traces.workloads.report import WorkloadReport
from traces.workloads.rows import Rows
from traces.workloads.workload_file import RowStream, WorkloadFile

# ---------------- Bounds of the lengths of requests, and of the options beside them.


@dataclass(frozen=True, slots=True)
class Clip:
    """Bounds of the lengths, in tokens. A request emits at least one token, from its prefill."""

    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    min_output_tokens: int = 1
    min_prompt_tokens: int = 1

    def __post_init__(self) -> None:
        for what in ("prompt", "output"):
            low, high = self.bounds(what)
            check_whole(f"min_{what}_tokens", low, 1, MOST_TOKENS)
            if high is not None:
                check_whole(f"max_{what}_tokens", high, low, MOST_TOKENS)

    def bounds(self, what: str) -> tuple[int, int | None]:
        return getattr(self, f"min_{what}_tokens"), getattr(self, f"max_{what}_tokens")


def check_number(name: str, value: Any, bounds: tuple[float, float]) -> None:
    """InputError unless the option `name` is a number within `bounds`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not bounds[0] <= value <= bounds[1]:
        raise InputError(f"{name} is {value!r}; accepted: a number {bounds[0]:g} to {bounds[1]:g}")


def check_whole(name: str, value: Any, low: int, high: int) -> None:
    """InputError unless the option `name` is a whole number `low` to `high`."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise InputError(f"{name} is {value!r}; accepted: a whole number {low} to {high}")


SCALES = (1e-6, 1e6)  # of time_scale
GAPS_S = (1e-6, 1e12)  # of max_gap_s
UNCLIPPED = Clip()


def scaled(
    rows: Iterable[Rows],
    *,
    time_scale: float = 1.0,
    max_gap_s: float | None = None,
    clip: Clip = UNCLIPPED,
    limit: int | None = None,
) -> Scaled:
    """`rows` (a WorkloadFile, its `rows()`, or any rows) with the options applied, lazily.

    limit: the first rows only. clip: lengths outside are set to the bound. time_scale: every
    time is multiplied by it, so 2.0 halves the rate. max_gap_s: then a gap above it is cut to
    it, and all later rows move up; given, the file may have gaps of any size. Raises InputError
    for an option out of range, and for time options where the rows have no times.
    """
    check_number("time_scale", time_scale, SCALES)
    if max_gap_s is not None:
        check_number("max_gap_s", max_gap_s, GAPS_S)
    if limit is not None:
        check_whole("limit", limit, 1, 10**12)
    return Scaled(rows, float(time_scale), max_gap_s, clip, limit)


class Scaled:
    """Iterable of Rows; `report` counts what the pass in progress, or the last one, changed."""

    def __init__(
        self,
        rows: Iterable[Rows],
        time_scale: float,
        max_gap_s: float | None,
        clip: Clip,
        limit: int | None,
    ) -> None:
        self._rows, self._clip, self._limit = rows, clip, limit
        self._time_scale, self._max_gap_s = time_scale, max_gap_s
        self._unused: tuple[str, ...] = ()
        if isinstance(rows, WorkloadFile | RowStream):
            file = rows if isinstance(rows, WorkloadFile) else rows.file
            self._check_times(file.has_times, str(file.path))
            self._unused = file.source.unused
        self.report = self._new_report()

    def __iter__(self) -> Iterator[Rows]:
        self.report = report = self._new_report()
        source = iter(self._rows)
        stream = source if isinstance(source, RowStream) else None
        if stream and self._max_gap_s is not None:
            stream.largest_gap_s = math.inf
        for rows in source:
            last = self._limit is not None and report.rows + len(rows) >= self._limit
            rows = _first(rows, self._limit - report.rows) if last else rows
            report.rows += len(rows)
            if stream:
                report.dropped = stream.dropped_above(int(rows.line[-1]))
            yield self._clipped(self._timed(rows, report), report)
            if last:
                break
        else:
            if stream and stream.file.tally:
                report.dropped = stream.file.tally.dropped
        if stream:
            stream.close()

    def _new_report(self) -> WorkloadReport:
        options = {"time_scale": self._time_scale, "max_gap_s": self._max_gap_s}
        return WorkloadReport({**options, **asdict(self._clip), "limit": self._limit}, self._unused)

    def _check_times(self, has_times: bool, source: str) -> None:
        for name, value, none in (
            ("time_scale", self._time_scale, 1.0),
            ("max_gap_s", self._max_gap_s, None),
        ):
            if value != none and not has_times:
                raise InputError(
                    f"{source}: {name} is {value}, but there are no arrival times; accepted: {none}"
                )

    def _timed(self, rows: Rows, report: WorkloadReport) -> Rows:
        self._check_times(rows.time_s is not None, f"line {rows.line[0]}")
        if rows.time_s is None:
            return rows
        time_s = rows.time_s * self._time_scale  # (n,)
        played_s = time_s if self._max_gap_s is None else self._without_gaps(time_s, report)
        report.own.add(rows.time_s)
        report.after_scale.add(time_s)
        report.after_gaps.add(played_s)
        return replace(rows, time_s=played_s)

    def _without_gaps(self, time_s: np.ndarray, report: WorkloadReport) -> np.ndarray:
        """(n,) times with every gap above max_gap_s cut to it."""
        begun = report.rows > len(time_s)  # report.rows counts these already
        before_s = report.after_scale.last_s if begun else time_s[0]
        excess_s = np.maximum(np.diff(time_s, prepend=before_s) - self._max_gap_s, 0.0)
        removed_s = report.gap_seconds_removed + np.cumsum(excess_s)
        report.gaps_cut += int((excess_s > 0).sum())
        report.gap_seconds_removed = float(removed_s[-1])
        # Rounding may not let a time fall behind the one above it.
        floor_s = report.after_gaps.last_s if begun else -math.inf
        return np.maximum.accumulate(np.maximum(time_s - removed_s, floor_s))

    def _clipped(self, rows: Rows, report: WorkloadReport) -> Rows:
        changed = np.zeros(len(rows), dtype=bool)
        lengths = {}
        for what in ("prompt", "output"):
            before = getattr(rows, f"{what}_tokens")
            after = np.clip(before, *self._clip.bounds(what))
            changed |= after != before
            _add(report, f"{what}s_cut", (after < before).sum())
            _add(report, f"{what}s_raised", (after > before).sum())
            _add(report, f"{what}_tokens_changed", (after - before).sum())
            lengths[f"{what}_tokens"] = after
        report.rows_clipped += int(changed.sum())
        return replace(rows, **lengths)


def _add(report: WorkloadReport, name: str, number: np.integer) -> None:
    setattr(report, name, getattr(report, name) + int(number))


def _first(rows: Rows, count: int) -> Rows:
    """The first `count` rows."""
    return Rows(
        None if rows.time_s is None else rows.time_s[:count],
        rows.prompt_tokens[:count],
        rows.output_tokens[:count],
        None if rows.domain is None else rows.domain[:count],
        rows.line[:count],
    )
