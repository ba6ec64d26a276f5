"""The load that a run was under, and the axes along which loads differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """A closed loop (``request_rate`` inf) or arrivals with a cap on requests in flight.

    A rate of 0 is none: of a file whose requests all come at one time.
    """

    request_rate: float
    max_concurrency: int
    burstiness: float  # 1 where no gaps are drawn
    ramp: int = 0  # completions at either end of an open loop that its window leaves out
    of_file: bool = False  # requests come when a workload's file says

    @property
    def closed(self) -> bool:
        return self.request_rate == inf

    @property
    def title(self) -> str:
        if self.closed:
            return f"concurrency {self.max_concurrency}"
        rest = f"at most {self.max_concurrency} in flight{self._ramp(', ramp ')}"
        if not self.request_rate:
            return f"arrivals all at one time, {rest}"
        return f"request rate {self.request_rate:g}/s, {self._gaps}, {rest}"

    @property
    def way(self) -> Load:
        """What loads share that differ in the concurrency, or the request rate, alone."""
        return replace(self, max_concurrency=0) if self.closed else replace(self, request_rate=0.0)

    @property
    def x(self) -> float:
        """The concurrency of a closed loop, else the request rate: its place on a load axis."""
        return float(self.max_concurrency) if self.closed else self.request_rate

    @property
    def suffix(self) -> str:
        """In names of files: ``.c16`` of a closed loop of 16, ``.r2.5_b1_c64`` of arrivals."""
        if self.closed:
            return f".c{self.max_concurrency}"
        gaps = "file" if self.of_file else f"b{self.burstiness:g}"
        return f".r{self.request_rate:g}_{gaps}_c{self.max_concurrency}{self._ramp('_ramp')}"

    @property
    def axis_name(self) -> str:
        """What is kept along an axis of rates, in names of files."""
        gaps = "file_arrivals" if self.of_file else f"burstiness{self.burstiness:g}"
        return f"cap{self.max_concurrency}_{gaps}{self._ramp('_ramp')}"

    @property
    def axis_words(self) -> str:
        """The same in words; empty of closed loops."""
        if self.closed:
            return ""
        return f" ({self._gaps}, at most {self.max_concurrency} in flight{self._ramp(', ramp ')})"

    @property
    def record(self) -> dict[str, Any]:
        """As columns of CSV."""
        return {
            "max_concurrency": self.max_concurrency,
            "request_rate": self.request_rate or None,
            "burstiness": None if self.of_file else self.burstiness,
        }

    @property
    def _gaps(self) -> str:
        return "the file's arrivals" if self.of_file else f"burstiness {self.burstiness:g}"

    def _ramp(self, before: str) -> str:
        return f"{before}{self.ramp}" if self.ramp else ""


def load_of(data: Mapping[str, Any]) -> Load:
    """The load of a summary."""
    rate, most, work = data["request_rate"], data["max_concurrency"], data.get("workload")
    if rate in ("inf", inf):
        return Load(inf, most, 1.0)
    # Whether requests come when the workload's file says: its rate is the run's.
    of_file = False
    if isinstance(work, Mapping):
        played = "played_rate" in work and work["played_rate"] == rate
        of_file = work["arrivals"] == "file" if "arrivals" in work else played
    rate = float(rate or 0)
    drawn = rate > 0 and not of_file  # else there are no gaps to be drawn
    burstiness = data["burstiness"] if drawn else 1.0
    return Load(rate, most, burstiness, data.get("ramp") or 0, rate > 0 and of_file)
