"""The reliability diagram of one recording: edges on plain axes, paths on logarithmic ones."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from analysis.drawing import despine, new_figure
from analysis.look import DASHED, SMALL, TONES, Look
from analysis.reliability import MAPS, Bin, Curve, Reliability

_LABELS = {"q": "q", "platt": "Platt", "edge_map": "depth, rank", "isotonic": "isotonic"}
_LOOKS = {  # of no policy
    "q": Look("0.35", "x", DASHED),
    "platt": Look(TONES[3], "s"),
    "edge_map": Look(TONES[2], "^"),
    "isotonic": Look(TONES[4], "o"),
}


def draw_reliability(one: Reliability) -> Figure:
    """Edges left, path survival right, each with its errors in the legend above."""
    figure = new_figure(2.15)
    edge, path = figure.subplots(1, 2)
    _panel(edge, {name: curve.bins for name, curve in one.curves["edge"].items()})
    edge.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    edge.set_xlabel("edge probability")
    edge.set_ylabel("accepted (share)")
    _panel(path, {name: _positive(curve.log_bins) for name, curve in one.curves["path"].items()})
    _log_axes(path, one.curves["path"])
    path.set_xlabel("path survival")
    for axes, level in ((edge, "edge"), (path, "path")):
        axes.set_aspect("equal", adjustable="box")
        _legend(axes, one.curves[level], lines=len(MAPS["path"]))
    held = "" if one.split == "calibration" else " (held out)"
    remark = f"{one.name}, T = {one.temperature:g}, {one.split} split{held}; hollow: few cases"
    figure.supxlabel(remark, fontsize=SMALL, color="0.4", x=0.98, ha="right")
    return despine(figure)


def _positive(bins: tuple[Bin, ...]) -> tuple[Bin, ...]:
    return tuple(one for one in bins if one.accepted and one.mean > 0)


def _panel(axes: Axes, curves: Mapping[str, tuple[Bin, ...]]) -> None:
    axes.axline((0, 0), (1, 1), color="0.2", linestyle=":", linewidth=0.9, label="_equal")
    for name, bins in curves.items():
        look = _LOOKS[name]
        x, y = [one.mean for one in bins], [one.share for one in bins]
        axes.plot(x, y, color=look.colour, linestyle=look.dash, linewidth=0.8, label=f"_{name}")
        for few, face in ((False, look.colour), (True, "white")):
            found = [(one.mean, one.share) for one in bins if one.few == few]
            if found:
                axes.plot(*zip(*found), label="_bins", **_dot(look) | {"mfc": face})


def _dot(look: Look) -> dict:
    marker = {"marker": look.marker, "markersize": 2.8, "mec": look.edge, "mew": 0.6}
    return {"color": look.colour, "linestyle": "none", "mfc": look.colour} | marker


def _log_axes(axes: Axes, curves: Mapping[str, Curve]) -> None:
    """The same decades on both axes, whole ones, so that equal is the diagonal."""
    shown = [one for curve in curves.values() for one in _positive(curve.log_bins)]
    least = min((min(one.mean, one.share) for one in shown), default=0.1)
    low = 0.1
    while low > least:
        low /= 10
    axes.set(xscale="log", yscale="log", xlim=(low, 1.3), ylim=(low, 1.3))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=9))
        axis.set_minor_locator(NullLocator())


def _legend(axes: Axes, curves: Mapping[str, Curve], lines: int) -> None:
    """Above its panel; `lines` high in both, so that the panels keep one height."""
    handles = [
        Line2D([], [], label=f"{_LABELS[name]} (ECE {curve.ece:.4f})", **_entry(_LOOKS[name]))
        for name, curve in curves.items()
    ]
    blank = Line2D([], [], linestyle="none", label=" ")
    axes.legend(
        handles=[blank] * (lines - len(handles)) + handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.01),
        frameon=False,
        handlelength=2.0,
        handletextpad=0.5,
        labelspacing=0.3,
        borderaxespad=0.0,
    )


def _entry(look: Look) -> dict:
    return _dot(look) | {"linestyle": look.dash, "linewidth": 0.8}
