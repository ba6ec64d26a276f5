"""Rows of a file made to fit a run: lengths clipped, time scaled, gaps cut, all of it counted.

Nothing here changes a file's rate without saying so: `Scaled.report` has the rate of the file,
the rate after scaling and the rate after gaps were cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from pydantic import model_validator

from traces.common.errors import InputError
from traces.common.settings import Section, number, whole
from traces.workloads.cells import MOST_TOKENS
from traces.workloads.rows import Rows, RowStream, WorkloadFile

# ---------------- What may be asked for.


class Clip(Section):
    """Bounds of the lengths, in tokens. A request emits at least one token, from its prefill."""

    max_prompt_tokens: whole(1, MOST_TOKENS) | None = None
    max_output_tokens: whole(1, MOST_TOKENS) | None = None
    min_output_tokens: whole(1, MOST_TOKENS) = 1
    min_prompt_tokens: whole(1, MOST_TOKENS) = 1

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for what in ("prompt", "output"):
            low, high = self.bounds(what)
            if high is not None and high < low:
                self.refuse(f"max_{what}_tokens", f"a whole number from {low}, or null")
        return self

    def bounds(self, what: str) -> tuple[int, int | None]:
        """Of `prompt` or `output`."""
        return getattr(self, f"min_{what}_tokens"), getattr(self, f"max_{what}_tokens")


class _Options(Section):
    time_scale: number(1e-6, 1e6) = 1.0
    max_gap_s: number(1e-6, 1e12) | None = None
    limit: whole(1, 10**12) | None = None


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
    return Scaled(rows, _Options(time_scale=time_scale, max_gap_s=max_gap_s, limit=limit), clip)


# ---------------- What was changed between a file and the requests that are played.


@dataclass(slots=True)
class Pace:
    """Rows and seconds of one clock, from its first row to its last."""

    rows: int = 0
    first_s: float = 0.0
    last_s: float = 0.0

    def add(self, time_s: np.ndarray) -> None:
        """Rows at `time_s` (n,), n at least 1, none before the rows added so far."""
        if not self.rows:
            self.first_s = float(time_s[0])
        self.rows += len(time_s)
        self.last_s = float(time_s[-1])

    @property
    def rate(self) -> float | None:
        """Gaps over seconds, (rows - 1) / span in requests per second; None without a span."""
        span_s = self.last_s - self.first_s
        if self.rows < 2 or not span_s:
            return None
        rate = (self.rows - 1) / span_s
        return rate if math.isfinite(rate) else None


COUNTS = (
    "rows_clipped",  # with the prompt or the output changed
    *("prompts_cut", "prompts_raised", "outputs_cut", "outputs_raised"),
    *("prompt_tokens_changed", "output_tokens_changed"),  # tokens after less tokens before
    "gaps_cut",
)
_MOST_NAMES = 20
_LONGEST_NAME = 40  # characters


@dataclass(slots=True)
class WorkloadReport:
    """Counts over the rows handed out so far: all of them once `scaled` is read to its end."""

    options: Mapping[str, Any]  # as given
    unused: Sequence[str] = ()  # columns, or keys of the file's first item, that are not read
    rows: int = 0
    # Left out by the reader above the last row, by reason; all after a full pass.
    dropped: Mapping[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    gap_seconds_removed: float = 0.0
    own: Pace = field(default_factory=Pace)  # the file's times
    after_scale: Pace = field(default_factory=Pace)  # times time_scale
    after_gaps: Pace = field(default_factory=Pace)  # with gaps cut as well: what is played

    def describe(self) -> dict[str, Any]:
        """Everything as JSON types; rates in requests per second, null where there is none."""
        more = len(self.unused) - _MOST_NAMES
        names = [name[:_LONGEST_NAME] for name in self.unused[:_MOST_NAMES]]
        return {
            **self.options,
            "columns_not_used": names + ([f"and {more} more"] if more > 0 else []),
            "rows": self.rows,
            "dropped": dict(self.dropped),
            **self.counts,
            "gap_seconds_removed": self.gap_seconds_removed,
            "file_span_s": self.own.last_s - self.own.first_s if self.own.rows else None,
            "file_rate": self.own.rate,
            "scaled_rate": self.after_scale.rate,
            "played_rate": self.after_gaps.rate,
        }


class Scaled:
    """Iterable of Rows; `report` counts what the pass in progress, or the last one, changed."""

    def __init__(self, rows: Iterable[Rows], options: _Options, clip: Clip) -> None:
        self._rows, self._options, self._clip = rows, options, clip
        self._unused: tuple[str, ...] = ()
        if isinstance(rows, WorkloadFile | RowStream):
            file = rows if isinstance(rows, WorkloadFile) else rows.file
            self._check_times(file.has_times, str(file.path))
            self._unused = file.source.unused
        self.report = self._new_report()

    def __iter__(self) -> Iterator[Rows]:
        self.report = report = self._new_report()
        source, limit = iter(self._rows), self._options.limit
        stream = source if isinstance(source, RowStream) else None
        if stream and self._options.max_gap_s is not None:
            stream.largest_gap_s = math.inf
        for rows in source:
            last = limit is not None and report.rows + len(rows) >= limit
            rows = _first(rows, limit - report.rows) if last else rows
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
        options = self._options.model_dump() | self._clip.model_dump()
        return WorkloadReport(options, self._unused)

    def _check_times(self, has_times: bool, source: str) -> None:
        asked = sorted(self._options.changed() & {"time_scale", "max_gap_s"})
        if asked and not has_times:
            name = asked[-1]
            value, none = getattr(self._options, name), getattr(_Options(), name)
            raise InputError(
                f"{source}: {name} is {value}, but there are no arrival times; accepted: {none}"
            )

    def _timed(self, rows: Rows, report: WorkloadReport) -> Rows:
        self._check_times(rows.time_s is not None, f"line {rows.line[0]}")
        if rows.time_s is None:
            return rows
        time_s, most_s = rows.time_s * self._options.time_scale, self._options.max_gap_s  # (n,)
        played_s = time_s if most_s is None else _without_gaps(time_s, most_s, report)
        report.own.add(rows.time_s)
        report.after_scale.add(time_s)
        report.after_gaps.add(played_s)
        return replace(rows, time_s=played_s)

    def _clipped(self, rows: Rows, report: WorkloadReport) -> Rows:
        changed, counts, lengths = np.zeros(len(rows), dtype=bool), report.counts, {}
        for what in ("prompt", "output"):
            before = getattr(rows, f"{what}_tokens")
            after = np.clip(before, *self._clip.bounds(what))
            changed |= after != before
            counts[f"{what}s_cut"] += int((after < before).sum())
            counts[f"{what}s_raised"] += int((after > before).sum())
            counts[f"{what}_tokens_changed"] += int((after - before).sum())
            lengths[f"{what}_tokens"] = after
        counts["rows_clipped"] += int(changed.sum())
        return replace(rows, **lengths)


def _without_gaps(time_s: np.ndarray, most_s: float, report: WorkloadReport) -> np.ndarray:
    """(n,) times with every gap above `most_s` cut to it."""
    begun = report.rows > len(time_s)  # report.rows counts these already
    before_s = report.after_scale.last_s if begun else time_s[0]
    excess_s = np.maximum(np.diff(time_s, prepend=before_s) - most_s, 0.0)
    removed_s = report.gap_seconds_removed + np.cumsum(excess_s)
    report.counts["gaps_cut"] += int((excess_s > 0).sum())
    report.gap_seconds_removed = float(removed_s[-1])
    # Rounding may not let a time fall behind the one above it.
    floor_s = report.after_gaps.last_s if begun else -math.inf
    return np.maximum.accumulate(np.maximum(time_s - removed_s, floor_s))


def _first(rows: Rows, count: int) -> Rows:
    """The first `count` rows."""
    columns = (rows.time_s, rows.prompt_tokens, rows.output_tokens, rows.domain, rows.line)
    return Rows(*(None if column is None else column[:count] for column in columns))
