"""The drawings of runs, and the style of all; matplotlib and seaborn are loaded only to draw.

Made for one column of a paper: 3.4 inches wide, text of 6 to 8 points, legends outside the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from textwrap import fill

import matplotlib
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    LogLocator,
    NullLocator,
    StrMethodFormatter,
)

from analysis.compare import BASELINE
from analysis.curves import Line, OrderCurves
from analysis.intervals import Estimate
from analysis.look import Look
from analysis.metrics import SPEEDUP
from analysis.sweeps import Point, Sweep

WIDTH_IN = 3.4
_LEGEND_CHARS = 52  # that fit the width
_LEGEND_LINE_IN = 0.125
STYLE = seaborn.axes_style("whitegrid") | {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same figure on every machine
    "font.size": 7,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "0.3",
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.6,
    "xtick.bottom": True,
    "ytick.left": True,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "pdf.fonttype": 42,  # editable text in the PDF
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.02,
    "figure.constrained_layout.w_pad": 0.02,
}
style = matplotlib.rc_context


def draw_throughput(sweep: Sweep, look: dict[str, Look]) -> Figure:
    """Throughput against load and, where a baseline ran, speedup below it."""
    panels = 2 if sweep.has_speedup else 1
    figure = Figure(figsize=(WIDTH_IN, 0.65 + 1.45 * panels))
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    _panel(axes[0], sweep, look, "output_throughput", skip=())
    axes[0].set_ylabel("output (tokens/s)")
    _throughput_scale(axes[0], sweep)
    if panels == 2:
        axes[1].axhline(1.0, color="0.2", linestyle=":", linewidth=0.9, label="_baseline")
        _panel(axes[1], sweep, look, SPEEDUP, skip=(BASELINE,))
        axes[1].set_ylabel("speedup over\nautoregressive (×)")
    _log2_ticks(axes[-1], sweep.x_values)
    axes[-1].set_xlabel(sweep.x_label)
    _legend(figure, {label: look[label] for label in sweep.series})
    _remark(figure, sweep)
    seaborn.despine(figure)
    return figure


def _throughput_scale(axes: Axes, sweep: Sweep) -> None:
    """Logarithmic over a wide sweep: a ratio is then as long at concurrency 1 as at 64."""
    means = [point.row.estimate("output_throughput").mean for point in sweep.points]
    if min(means) <= 0 or max(means) < 5 * min(means):
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _panel(axes: Axes, sweep: Sweep, look: dict[str, Look], key: str, skip: Sequence[str]) -> None:
    for label, points in sweep.series.items():
        found = [(point, point.row.estimate(key)) for point in points]
        found = [(point, one) for point, one in found if one is not None]
        if found and label not in skip:
            _series(axes, label, look[label], found)


def _series(axes: Axes, label: str, look: Look, found: Sequence[tuple[Point, Estimate]]) -> None:
    """A line with its band; markers are hollow where the cost model had to extrapolate."""
    x = [point.x for point, _ in found]
    axes.plot(x, [one.mean for _, one in found], label=label, **_line_style(look))
    for point, one in found:
        if point.hollow and look.marker not in "x+":
            axes.plot(point.x, one.mean, label="_hollow", **_line_style(look) | {"mfc": "white"})
    if any(one.half_width is not None for _, one in found):
        low, high = [one.low for _, one in found], [one.high for _, one in found]
        axes.fill_between(x, low, high, color=look.colour, alpha=0.2, linewidth=0)


def draw_acceptance(curves: OrderCurves, look: dict[str, Look]) -> Figure:
    """Acceptance length against the number of verified nodes."""
    figure = Figure(figsize=(WIDTH_IN, 2.2))
    axes = figure.subplots()
    for line in curves.lines:
        _curve(axes, line, look[line.labels[0]])
    _log2_ticks(axes, sorted({budget for line in curves.lines for budget in line.budgets}))
    axes.set_xlabel("verified nodes per round (N)")
    axes.set_ylabel("acceptance length\n(tokens/round)")
    _legend(figure, {line.name: look[line.labels[0]] for line in curves.lines})
    seaborn.despine(figure)
    return figure


def _curve(axes: Axes, line: Line, look: Look) -> None:
    axes.plot(line.budgets, line.mean, label=line.name, **_line_style(look))
    if line.varies:
        axes.fill_between(
            line.budgets, line.low, line.high, color=look.colour, alpha=0.2, linewidth=0
        )


def _line_style(look: Look) -> dict:
    return {
        "color": look.colour,
        "marker": look.marker,
        "linestyle": look.dash,
        "mfc": look.colour,
        "mec": look.edge,
        "mew": 0.8,
    }


def _log2_ticks(axes: Axes, values: Sequence[float]) -> None:
    """A log2 axis with a tick at every tested value; labels only where they have room."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(values))
    room = 0.055 * max(log2(max(values) / min(values)), 1.0)
    labelled: list[float] = []
    for value in sorted(values, key=lambda value: (not log2(value).is_integer(), value)):
        if all(abs(log2(value / other)) >= room for other in labelled):
            labelled.append(value)
    labels = [f"{value:g}" if value in labelled else "" for value in values]
    axes.xaxis.set_major_formatter(FixedFormatter(labels))


def _legend(figure: Figure, looks: dict[str, Look]) -> None:
    """One compact legend above the panels, where it covers no data; the figure grows for it."""
    names = {name: fill(name, _LEGEND_CHARS) for name in looks}
    longest = max(map(len, names))
    columns = 3 if longest <= 16 else 2 if longest <= 28 else 1
    handles = [Line2D([], [], label=names[name], **_line_style(looks[name])) for name in looks]
    lines = ceil(sum(name.count("\n") + 1 for name in names.values()) / columns)
    figure.set_figheight(figure.get_figheight() + _LEGEND_LINE_IN * lines)
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        handlelength=2.2,
        columnspacing=1.2,
        handletextpad=0.5,
        labelspacing=0.3,
        borderaxespad=0.0,
    )


def _remark(figure: Figure, sweep: Sweep) -> None:
    """Say in the figure itself what must not get lost when it is pasted without its caption."""
    parts = ["what-if: latency of another model"] if sweep.what_if else []
    if any(point.hollow for point in sweep.points):
        parts.append("hollow: cost partly modelled or clamped")
    if parts:
        figure.supxlabel("; ".join(parts), fontsize=5.5, color="0.4", x=0.98, ha="right")
