"""A comparison as series over one load axis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from analysis.compare import Block, Comparison, Load, Row
from analysis.metrics import SPEEDUP

PARTLY = 0.05  # share of modelled or clamped step time from which a marker is hollow
WHAT_IF = "what-if: another model's step times"
HOLLOW = f"Hollow markers: more than {PARTLY:.0%} of the step time is modelled or clamped."


@dataclass(frozen=True, slots=True)
class Point:
    """One policy at one load."""

    x: float  # requests in flight, or requests per second
    row: Row

    @property
    def hollow(self) -> bool:
        return is_hollow(self.row)


def is_hollow(row: Row) -> bool:
    """Whether more than `PARTLY` of the step time is modelled or clamped."""
    return max(row.cost_shares["modelled"], row.cost_shares["clamped"]) > PARTLY


def hollow_words(hollow: Iterable[bool]) -> list[str]:
    """What a figure itself says of hollow markers, where it has one."""
    return [f"hollow: >{PARTLY:.0%} of time modelled or clamped"] if any(hollow) else []


@dataclass(frozen=True, slots=True)
class Sweep:
    """All loads that differ in one thing: concurrency, or the request rate."""

    name: str  # for files
    axis: str  # "concurrency" or "request rate"
    x_label: str
    x_values: tuple[float, ...]
    series: dict[str, tuple[Point, ...]]  # by policy label
    what_if: bool
    baseline: str
    kept: str = ""  # what is the same along the axis, in words

    @property
    def points(self) -> list[Point]:
        return [point for line in self.series.values() for point in line]

    @property
    def has_speedup(self) -> bool:
        """Whether any policy but the baseline has one."""
        rows = (point.row for point in self.points)
        return any(row.label != self.baseline and row.estimate(SPEEDUP) for row in rows)

    @property
    def sentence(self) -> str:
        text = "Output throughput of the whole server (tokens/s)"
        if self.has_speedup:
            text += f" and its ratio to that of {self.baseline}, "
            text += "paired by seed (dotted line: 1),"
        return f"{text} against {self.axis}{self.kept}."

    @property
    def remarks(self) -> list[str]:
        """What must stand in the figure itself."""
        hollow = hollow_words(point.hollow for point in self.points)
        return [*([WHAT_IF] if self.what_if else []), *hollow]

    @property
    def all_hollow(self) -> set[str]:
        """Labels all of whose points are hollow."""
        return {label for label, line in self.series.items() if all(one.hollow for one in line)}

    @property
    def notes(self) -> list[str]:
        """What the drawing itself needs explained."""
        found = [HOLLOW] if any(point.hollow for point in self.points) else []
        if not self.has_speedup:
            found.append(f"No speedup: no {self.baseline} run of this setting at these loads.")
        return found


def sweeps(comparison: Comparison) -> list[Sweep]:
    """One sweep over concurrency for the closed loops, one over the rate for each open setting."""
    return [_sweep(comparison, way, blocks) for way, blocks in load_axes(comparison)]


def load_axes(comparison: Comparison) -> list[tuple[Load, list[Block]]]:
    """Blocks that differ in the concurrency, or the request rate, alone, by what they share."""
    groups: dict[Load, list[Block]] = defaultdict(list)
    for block in comparison.blocks:
        if block.load.request_rate:  # else it has no place on an axis of rates
            groups[block.load.way].append(block)
    return list(groups.items())


def axis_name(way: Load) -> str:
    """What is kept along an axis of rates, for names of files."""
    gaps = "file_arrivals" if way.of_file else f"burstiness{way.burstiness:g}"
    ramp = f"_ramp{way.ramp}" if way.ramp else ""
    return f"cap{way.max_concurrency}_{gaps}{ramp}"


def axis_words(way: Load) -> str:
    """The same in words; empty of closed loops."""
    if way.closed:
        return ""
    gaps = "the file's arrivals" if way.of_file else f"burstiness {way.burstiness:g}"
    ramp = f", ramp {way.ramp}" if way.ramp else ""
    return f" ({gaps}, at most {way.max_concurrency} in flight{ramp})"


def _sweep(comparison: Comparison, way: Load, blocks: list[Block]) -> Sweep:
    series: dict[str, list[Point]] = {label: [] for label in comparison.labels}
    for block in blocks:
        x = block.load.max_concurrency if way.closed else block.load.request_rate
        for row in block.rows:
            series[row.label].append(Point(x, row))
    lines = {label: tuple(line) for label, line in series.items() if line}
    values = tuple(sorted({point.x for line in lines.values() for point in line}))
    what_if = comparison.runs[0].data["what_if"]
    if way.closed:
        names = "concurrency", "concurrency", "concurrency (requests in flight)"
    else:
        name = f"request_rate.{axis_name(way)}"
        names = name, "request rate", "request rate (requests/s)"
    return Sweep(*names, values, lines, what_if, comparison.baseline, axis_words(way))
