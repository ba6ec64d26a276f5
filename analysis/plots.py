"""Lines against load, and acceptance length against budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.compare import Row
from analysis.curves import OrderCurves
from analysis.drawing import (
    MANY,
    STYLE,
    THIN,
    band,
    despine,
    draw_line,
    legend,
    line_style,
    new_figure,
    plain,
    remark,
    style,
    unit_line,
)
from analysis.intervals import Estimate
from analysis.look import Look, look_of
from analysis.metrics import SPEEDUP
from analysis.overlaps import covered, equal_words
from analysis.scales import log2_ticks, log_axis, short_labels, tick
from analysis.sweeps import Point, Sweep

__all__ = ["STYLE", "Of", "draw_acceptance", "draw_load", "draw_throughput", "style"]

_BEYOND = 1.5  # times the outermost means, up to which an axis shows intervals
Of = Callable[[Row], Estimate | None]  # what is drawn of a policy at a load
Found = Sequence[tuple[Point, Estimate]]  # of one policy


def draw_throughput(sweep: Sweep, look: Mapping[str, Look]) -> Figure:
    """Throughput against load and, where a baseline ran, the ratio to it below."""
    panels: list[tuple[str, Of]] = [("output (tokens/s)", _throughput)]
    if sweep.has_speedup:
        panels.append((f"speedup over\n{sweep.baseline} (×)", _speedup(sweep)))
    figure = draw_load(sweep, look, panels)
    if len(sweep.x_values) == 1:
        figure.axes[0].set_ylim(bottom=0)
    if sweep.has_speedup:
        unit_line(figure.axes[1])
        _within(figure.axes[1], [panels[1][1](point.row) for point in sweep.points])
    log_axis(figure.axes[0], "y", _seen([_throughput(point.row) for point in sweep.points]))
    return figure


def _seen(found: Sequence[Estimate | None]) -> list[float]:
    """Means, and the ends of intervals as far as they do not flatten what they surround."""
    means = [one.mean for one in found if one is not None]
    low, high = min(means) / _BEYOND, max(means) * _BEYOND
    ends = [end for one in found if one is not None for end in (one.low, one.high)]
    return means + [min(max(end, low), high) for end in ends]


def _throughput(row: Row) -> Estimate | None:
    return row.estimate("output_throughput")


def _speedup(sweep: Sweep) -> Of:
    """The baseline itself is the dotted line."""
    return lambda row: None if row.label == sweep.baseline else row.estimate(SPEEDUP)


def _within(axes: Axes, found: Sequence[Estimate | None]) -> None:
    """Room around the line at 1; wide intervals of few seeds are cut off rather than flatten."""
    means = [one.mean for one in found if one is not None]
    least, most = min(*means, 1.0), max(*means, 1.0)
    edge, room = 0.06 * (most - least), 0.25 * (most - least) + 0.05
    low, high = axes.get_ylim()
    low, high = min(low, least - edge), max(high, most + edge)
    axes.set_ylim(max(low, least - room, 0), min(high, most + room))


def draw_load(
    sweep: Sweep,
    look: Mapping[str, Look],
    panels: Sequence[tuple[str, Of]],
    more: Sequence[str] = (),
) -> Figure:
    """One panel for each (y label, what of a row) above a common load axis, with one legend.

    more: further remarks, beside the sweep's own.
    """
    many = len(sweep.series) > MANY
    figure = new_figure(0.65 + (1.9 if many else 1.45) * len(panels))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    every = []
    for each, (label, of) in zip(axes, panels, strict=True):
        found = _found(sweep, of)
        every.append({name: _means(one) for name, one in found.items()})
        below = covered(every[-1])
        for name, one in found.items():
            _series(each, name, look[name], one, below[name], thin=many)
        short_labels(each, "y")
        each.set_ylabel(plain(label))
    log2_ticks(axes[-1], sweep.x_values)
    axes[-1].set_xlabel(sweep.x_label)
    legend(figure, {label: look[label] for label in sweep.series}, sweep.all_hollow)
    remark(figure, [*more, *sweep.remarks, *equal_words(every)])
    return despine(figure)


def _found(sweep: Sweep, of: Of) -> dict[str, Found]:
    """What a panel draws of each policy, those with nothing left out."""
    every = {
        label: [(point, one) for point in points if (one := of(point.row)) is not None]
        for label, points in sweep.series.items()
    }
    return {label: found for label, found in every.items() if found}


def _means(found: Found) -> list[tuple[float, float]]:
    return [(point.x, one.mean) for point, one in found]


def _series(
    axes: Axes, label: str, look: Look, found: Found, below: Sequence[int], thin: bool
) -> None:
    """A line with its band; markers are hollow where the cost model had to extrapolate."""
    hollow = [point.hollow for point, _ in found]
    draw_line(axes, label, look, _means(found), below, hollow, **(THIN if thin else {}))
    if any(one.half_width is not None for _, one in found):
        low, high = [one.low for _, one in found], [one.high for _, one in found]
        band(axes, [point.x for point, _ in found], low, high, look, faint=thin)


def draw_acceptance(
    curves: OrderCurves,
    look: Mapping[str, Look],
    swept: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    remarks: Sequence[str] = (),
) -> Figure:
    """Acceptance length against the number of verified nodes.

    Args:
        swept: by policy, (budget, acceptance length) of runs that sweep it: hollow markers.
    """
    figure = new_figure(2.2)
    axes = figure.subplots()
    shown: dict[str, Look] = {}
    below = covered({line.name: line.points for line in curves.lines})
    for line in curves.lines:
        shown[line.name] = one = look_of(line.name) if line.whole else look[line.labels[0]]
        draw_line(axes, line.name, one, line.points, below[line.name])
        if line.varies:
            band(axes, line.budgets, line.low, line.high, one)
    budgets = {budget for line in curves.lines for budget in line.budgets}
    for name, points in (swept or {}).items():
        x, y = zip(*points, strict=True)
        hollow = {"linestyle": "none", "mfc": "none", "markersize": 5.5}
        axes.plot(x, y, label="_swept", **line_style(look_of(name)) | hollow)
        budgets |= set(map(tick, x))
        if all(name not in line.names for line in curves.lines):
            shown[name] = look_of(name)
    log2_ticks(axes, sorted(budgets))
    axes.set_xlabel("verified nodes per round (N)")
    axes.set_ylabel("acceptance length\n(tokens/round)")
    legend(figure, shown)
    remark(figure, remarks)
    return despine(figure)
