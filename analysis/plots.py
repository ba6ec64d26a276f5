"""Lines against load, and acceptance length against budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.compare import Row
from analysis.curves import Line, OrderCurves
from analysis.drawing import (
    STYLE,
    band,
    despine,
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
from analysis.scales import log2_ticks, log_axis
from analysis.sweeps import Point, Sweep

__all__ = ["STYLE", "Of", "draw_acceptance", "draw_load", "draw_throughput", "style"]

Of = Callable[[Row], Estimate | None]  # what is drawn of a policy at a load
_MANY = 12  # policies, from which on panels are taller and lines thinner


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
    points = [_throughput(point.row).mean for point in sweep.points]
    log_axis(figure.axes[0], "y", points)
    return figure


def _throughput(row: Row) -> Estimate | None:
    return row.estimate("output_throughput")


def _speedup(sweep: Sweep) -> Of:
    """The baseline itself is the dotted line."""
    return lambda row: None if row.label == sweep.baseline else row.estimate(SPEEDUP)


def _within(axes: Axes, found: Sequence[Estimate | None]) -> None:
    """Wide intervals of few seeds are cut off rather than flatten what they surround."""
    means = [one.mean for one in found if one is not None]
    room = 0.25 * (max(*means, 1.0) - min(*means, 1.0)) + 0.05
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, min(*means, 1.0) - room, 0), min(high, max(*means, 1.0) + room))


def draw_load(sweep: Sweep, look: Mapping[str, Look], panels: Sequence[tuple[str, Of]]) -> Figure:
    """One panel for each (y label, what of a row) above a common load axis, with one legend."""
    many = len(sweep.series) > _MANY
    figure = new_figure(0.65 + (1.9 if many else 1.45) * len(panels))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for each, (label, of) in zip(axes, panels, strict=True):
        _panel(each, sweep, look, of, thin=many)
        each.set_ylabel(plain(label))
    log2_ticks(axes[-1], sweep.x_values)
    axes[-1].set_xlabel(sweep.x_label)
    legend(figure, {label: look[label] for label in sweep.series})
    remark(figure, sweep.remarks)
    return despine(figure)


def _panel(axes: Axes, sweep: Sweep, look: Mapping[str, Look], of: Of, thin: bool) -> None:
    for label, points in sweep.series.items():
        found = [(point, of(point.row)) for point in points]
        found = [(point, one) for point, one in found if one is not None]
        if found:
            _series(axes, label, look[label], found, thin)


def _series(
    axes: Axes, label: str, look: Look, found: Sequence[tuple[Point, Estimate]], thin: bool
) -> None:
    """A line with its band; markers are hollow where the cost model had to extrapolate."""
    x = [point.x for point, _ in found]
    drawn = line_style(look) | ({"linewidth": 0.8, "markersize": 2.8} if thin else {})
    axes.plot(x, [one.mean for _, one in found], label=label, **drawn)
    for point, one in found:
        if point.hollow and look.marker not in "x+":
            axes.plot(point.x, one.mean, label="_hollow", **drawn | {"mfc": "white"})
    if any(one.half_width is not None for _, one in found):
        low, high = [one.low for _, one in found], [one.high for _, one in found]
        band(axes, x, low, high, look, faint=thin)


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
    for line in curves.lines:
        shown[line.name] = one = look_of(line.name) if line.whole else look[line.labels[0]]
        _curve(axes, line, one)
    budgets = {budget for line in curves.lines for budget in line.budgets}
    for name, points in (swept or {}).items():
        x, y = zip(*points, strict=True)
        hollow = {"linestyle": "none", "mfc": "none", "markersize": 5.5}
        axes.plot(x, y, label="_swept", **line_style(look_of(name)) | hollow)
        budgets |= set(x)
        if all(name not in line.names for line in curves.lines):
            shown[name] = look_of(name)
    log2_ticks(axes, sorted(budgets))
    axes.set_xlabel("verified nodes per round (N)")
    axes.set_ylabel("acceptance length\n(tokens/round)")
    legend(figure, shown)
    remark(figure, remarks)
    return despine(figure)


def _curve(axes: Axes, line: Line, look: Look) -> None:
    axes.plot(line.budgets, line.mean, label=line.name, **line_style(look))
    if line.varies:
        band(axes, line.budgets, line.low, line.high, look)
