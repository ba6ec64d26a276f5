"""What was changed between a workload file and the requests that are played."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_MOST_NAMES = 20
_LONGEST_NAME = 40  # characters


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
    def span_s(self) -> float | None:
        return self.last_s - self.first_s if self.rows else None

    @property
    def rate(self) -> float | None:
        """Gaps over seconds, (rows - 1) / span_s in requests per second; None without a span."""
        if self.rows < 2 or not self.span_s:
            return None
        rate = (self.rows - 1) / self.span_s
        return rate if math.isfinite(rate) else None


@dataclass(slots=True)
class WorkloadReport:
    """Counts over the rows handed out so far: all of them once `scaled` is read to its end."""

    options: Mapping[str, Any]  # as given
    unused: Sequence[str] = ()  # columns, or keys of the file's first item, that are not read
    rows: int = 0
    # Left out by the reader above the last row, by reason; all after a full pass.
    dropped: Mapping[str, int] = field(default_factory=dict)
    rows_clipped: int = 0  # with the prompt or the output changed
    prompts_cut: int = 0
    prompts_raised: int = 0
    outputs_cut: int = 0
    outputs_raised: int = 0
    prompt_tokens_changed: int = 0  # tokens after less tokens before
    output_tokens_changed: int = 0
    gaps_cut: int = 0
    gap_seconds_removed: float = 0.0
    own: Pace = field(default_factory=Pace)  # the file's times
    after_scale: Pace = field(default_factory=Pace)  # times time_scale
    after_gaps: Pace = field(default_factory=Pace)  # with gaps cut as well: what is played

    def describe(self) -> dict[str, Any]:
        """Everything as JSON types; rates in requests per second, null where there is none."""
        return {
            **self.options,
            "columns_not_used": _few(self.unused),
            "rows": self.rows,
            "dropped": dict(self.dropped),
            "rows_clipped": self.rows_clipped,
            "prompts_cut": self.prompts_cut,
            "prompts_raised": self.prompts_raised,
            "outputs_cut": self.outputs_cut,
            "outputs_raised": self.outputs_raised,
            "prompt_tokens_changed": self.prompt_tokens_changed,
            "output_tokens_changed": self.output_tokens_changed,
            "gaps_cut": self.gaps_cut,
            "gap_seconds_removed": self.gap_seconds_removed,
            "file_span_s": self.own.span_s,
            "file_rate": self.own.rate,
            "scaled_rate": self.after_scale.rate,
            "played_rate": self.after_gaps.rate,
        }


def _few(names: Sequence[str]) -> list[str]:
    """The first names, cut where they are long, and how many more there are."""
    more = len(names) - _MOST_NAMES
    return [name[:_LONGEST_NAME] for name in names[:_MOST_NAMES]] + (
        [f"and {more} more"] if more > 0 else []
    )
