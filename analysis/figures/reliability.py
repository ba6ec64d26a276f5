"""The reliability diagram of one recording: edges on plain axes, paths on logarithmic ones."""

from __future__ import annotations

from collections.abc import Iterator

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from analysis.figures import drawing
from analysis.figures.draw import Drawing, Inputs, Missing, file_name
from analysis.look import DASHED, SMALL, TONES, Look
from analysis.read.calibrations import ENDING, FEW, MAPS, Reliability

_LOOKS = {  # name and look, of no policy
    "q": ("q", Look("0.35", "x", DASHED)),
    "platt": ("Platt", Look(TONES[3], "s")),
    "edge_map": ("depth, rank", Look(TONES[2], "^")),
    "isotonic": ("isotonic", Look(TONES[4], "o")),
}


def draw_reliabilities(inputs: Inputs) -> Iterator[Drawing]:
    """One figure per calibration."""
    if not inputs.calibrations:
        raise Missing(f"no *{ENDING} was given: python -m simulator task=calibrate writes one")
    for one in inputs.calibrations:
        fitted = "held out, maps are fitted on the calibration split"
        split = fitted if one.split != "calibration" else "the split that the maps are fitted on"
        sentence = (
            "Share accepted against estimated probability (dotted: equal), with the expected "
            "calibration error (ECE) over 15 bins of equal width."
        )
        remarks = (
            f"Left: edges, the children of accepted nodes; {one.count['edge']} in bins of equal "
            "width. Right: path survival of every node of the tree, products of those edges; "
            f"{one.count['path']} in four bins per decade, those without an accepted node not "
            f"drawn. Hollow: fewer than {FEW} accepted or {FEW} rejected.",
            "q: the drafter's probability; Platt: sigmoid(a logit q + b); depth, rank: with terms "
            "for both; isotonic: one monotone curve of Platt's path survival.",
        )
        recording = (
            f"{one.name} ({one.content_hash[:12]}), temperature {one.temperature:g}, "
            f"{one.split} split ({split}); {one.anchors} best-first trees of {one.nodes} nodes"
        )
        name = f"reliability.{file_name(one.name)}"
        yield Drawing(name, _figure(one), sentence, remarks, [("recording", recording)])


def _figure(one: Reliability) -> Figure:
    """Edges left, path survival right, each with its errors in the legend above."""
    figure = drawing.new_figure(2.15)
    edge, path = figure.subplots(1, 2)
    edge.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    edge.set(xlabel="edge probability", ylabel="accepted (share)")
    _panel(edge, one, "edge", {name: curve.bins for name, curve in one.curves["edge"].items()})
    found = {name: curve.log_bins for name, curve in one.curves["path"].items()}
    found = {name: own[(own["accepted"] > 0) & (own["mean"] > 0)] for name, own in found.items()}
    # The same decades on both axes, whole ones, so that equal is the diagonal.
    bins = pandas.concat(found)
    least, low = 0.1 if bins.empty else bins[["mean", "share"]].min(axis=None), 0.1
    while low > least:
        low /= 10
    path.set(xscale="log", yscale="log", xlim=(low, 1.3), ylim=(low, 1.3), xlabel="path survival")
    for axis in (path.xaxis, path.yaxis):
        axis.set_major_locator(LogLocator(numticks=9))
        axis.set_minor_locator(NullLocator())
    _panel(path, one, "path", found)
    held = "" if one.split == "calibration" else " (held out)"
    remark = f"{one.name}, T = {one.temperature:g}, {one.split} split{held}; hollow: few cases"
    figure.supxlabel(remark, fontsize=SMALL, color="0.4", x=0.98, ha="right")
    return drawing.despine(figure)


def _panel(axes: Axes, one: Reliability, level: str, bins: dict[str, pandas.DataFrame]) -> None:
    """Lines and dots, with a legend above that is as high in both, so that panels are too."""
    axes.set_aspect("equal", adjustable="box")
    axes.axline((0, 0), (1, 1), color="0.2", linestyle=":", linewidth=0.9, label="_equal")
    blank = Line2D([], [], linestyle="none", label=" ")
    handles = [blank] * (len(MAPS["path"]) - len(MAPS[level]))
    for name, found in bins.items():
        title, look = _LOOKS[name]
        line = {"color": look.colour, "linestyle": look.dash, "linewidth": 0.8}
        dot = {"marker": look.marker, "markersize": 2.8, "mec": look.edge, "mew": 0.6}
        axes.plot(found["mean"], found["share"], label=f"_{name}", **line)
        for few, own in found.groupby("few"):
            face = {"mfc": "white" if few else look.colour, "linestyle": "none"}
            axes.plot(own["mean"], own["share"], label="_bins", **line | dot | face)
        title = f"{title} (ECE {one.curves[level][name].ece:.4f})"
        handles.append(Line2D([], [], label=title, mfc=look.colour, **line | dot))
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.01), "frameon": False}
    spaces = {"handletextpad": 0.5, "labelspacing": 0.3, "borderaxespad": 0.0}
    axes.legend(handles=handles, handlelength=2.0, **place, **spaces)
