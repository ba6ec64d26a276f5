"""The figure of a validation: live against predicted, errors, and the parts of a round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from textwrap import fill

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis.figures import drawing
from analysis.figures.draw import Drawing, Inputs, Missing
from analysis.look import looks
from analysis.read.validations import FILE_NAME, PARTS, Validation
from analysis.text.validation import facts

_BAND = 0.05  # the accuracy asked of a prediction
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h")  # by concurrency
_LIVE = ("0.82", "0.55", "0.2")  # parts of a round, from below: greys, and violets of no policy
_PREDICTED = ("#DAD2EC", "#9A86C8", "#43317A")
_SIDE_BY_SIDE = 24  # cells; more get a panel as wide as the figure
_FEWEST_SLOTS = 8  # of a row of cells: two cells are not drawn as two walls
_GAP = 1.0  # slots between two concurrencies
_LONGEST = 19  # characters of a name that leave room for two columns of names
_LINE_CHARS = 36
_SHOWN = (
    "Output throughput of the whole server (tokens/s), live against predicted (solid line: "
    "equal, band: within 5 %); error of the prediction by policy; mean time of a round (ms)."
)
_MARKS = (
    "Colour is the policy, marker the number of requests in flight. Grey boxes and horizontal "
    "bars: noise of the live runs. Dotted lines: errors of 5 %.",
    "Rounds: left bar live (greys), right bar predicted (violets); the dot below: policy.",
)

Dots = Mapping[tuple[str, int], Mapping]  # style of a policy at a concurrency


def draw_validations(inputs: Inputs) -> Iterator[Drawing]:
    """One figure per validation: throughput live (x) against predicted (y), errors and rounds."""
    if not inputs.validations:
        raise Missing(f"no {FILE_NAME} was given: python -m real_runner task=validate writes one")
    for one in inputs.validations:
        yield Drawing("predicted_vs_live", _figure(one), _SHOWN, _MARKS, facts(one))


def _figure(validation: Validation) -> Figure:
    look, sizes = looks(validation.policies), validation.concurrencies
    markers = {size: _MARKERS[at % len(_MARKERS)] for at, size in enumerate(sizes)}
    common = {"linestyle": "none", "markersize": 3.4, "mew": 0.4, "alpha": 0.9}
    dots = {
        (name, size): {"color": own.colour, "mec": own.edge, "marker": marker} | common
        for name, own in look.items()
        for size, marker in markers.items()
    }
    cells = validation.cells
    # A place on the x axis for every cell: groups of one concurrency, policies in order.
    cells = cells.assign(slot=cells.index + cells["max_concurrency"].map(sizes.index) * _GAP)
    aside = len(cells) <= _SIDE_BY_SIDE
    rows = [["live", "error"], ["round", "round"]] if aside else [["live"], ["error"], ["round"]]
    figure = drawing.new_figure(3.2 if aside else 5.0)
    axes = figure.subplot_mosaic(rows, height_ratios=[1.25, 1] if aside else [1.6, 1, 1])
    _draw_live(axes["live"], cells, dots)
    _draw_errors(axes["error"], cells, dots)
    _draw_rounds(axes["round"], cells, dots)
    # Policies and concurrencies above all panels, parts of a round above theirs.
    names = [_entry(fill(name, _LINE_CHARS), own.colour, own.edge) for name, own in look.items()]
    columns = 2 if max(map(len, look)) <= _LONGEST else 1
    rows = max(ceil(len(names) / columns), len(sizes))
    names += [_entry(" ", "none", "none")] * (columns * rows - len(names))
    lines = rows + sum(entry.get_label().count("\n") for entry in names)
    figure.set_figheight(figure.get_figheight() + 0.125 * lines)
    names += [_entry(f"{size} in flight", "0.3", "0.3", one) for size, one in markers.items()]
    figure.legend(handles=names, loc="outside upper center", ncols=columns + 1, **_LEGEND)
    return drawing.despine(figure)


_LEGEND = {"frameon": False, "handletextpad": 0.4, "labelspacing": 0.3, "borderaxespad": 0.0,
           "handlelength": 1.0, "columnspacing": 1.0}  # fmt: skip


def _entry(label: str, colour: str, edge: str, marker: str = "o") -> Line2D:
    looks_like = {"color": colour, "mec": edge, "marker": marker, "markersize": 3.6}
    return Line2D([], [], label=label, linestyle="none", **looks_like)


def _draw_live(axes: Axes, cells: pandas.DataFrame, dots: Dots) -> None:
    both = cells[["output_throughput", "output_throughput_predicted"]]
    low, high = both.min(axis=None) / 1.35, both.max(axis=None) * 1.35
    if high < 4 * low:  # room for two ticks
        low, high = (low * high) ** 0.5 / 2, (low * high) ** 0.5 * 2
    ends = [low, high]
    below, above = ([x * (1 + side) for x in ends] for side in (-_BAND, _BAND))
    axes.fill_between(ends, below, above, color="0.8", lw=0)
    axes.plot(ends, ends, color="0.4", linewidth=0.7, label="_equal")
    for cell in cells.itertuples():
        axes.errorbar(
            cell.output_throughput,
            cell.output_throughput_predicted,
            xerr=cell.noise * cell.output_throughput if cell.noise > 0 else None,
            label=f"_{cell.policy}",
            elinewidth=0.7,
            **dots[cell.policy, cell.max_concurrency],
        )
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    # Ticks per decade whose labels have room beside one another.
    span = high / low
    subs = (1.0, 2.0, 5.0) if span < 12 else (1.0, 3.0) if span < 200 else (1.0,)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: drawing.short(value)))
        axis.set_minor_locator(NullLocator())
    axes.set(xlabel="live (tokens/s)", ylabel="predicted (tokens/s)")


def _draw_errors(axes: Axes, cells: pandas.DataFrame, dots: Dots) -> None:
    axes.axhline(0.0, color="0.4", linewidth=0.7)
    for side in (-_BAND, _BAND):
        axes.axhline(100 * side, color="0.6", linewidth=0.6, linestyle=":")
    error, noise = 100 * cells["output_throughput_error"], 100 * cells["noise"].fillna(0.0)
    axes.bar(cells["slot"], 2 * noise, 1.0, -noise, color="0.8", linewidth=0, label="_noise")
    for at, cell in cells.iterrows():
        axes.plot(cell["slot"], error[at], **dots[cell["policy"], cell["max_concurrency"]])
    top = 1.15 * max(100 * _BAND, error.abs().max(), noise.max())
    axes.set_ylim(-top, top)
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axes.set_ylabel("throughput\nerror (%)")
    _ticks(axes, cells)


def _draw_rounds(axes: Axes, cells: pandas.DataFrame, dots: Dots) -> None:
    for _, cell in cells.iterrows():
        for shift, colours, ending in ((-0.2, _LIVE, ""), (0.2, _PREDICTED, "_predicted")):
            bottom = 0.0
            for part, colour in zip(PARTS, colours, strict=True):
                height, place = cell[f"{part}_ms{ending}"], cell["slot"] + shift
                axes.bar(place, height, 0.4, bottom, color=colour, lw=0, label="_part")
                bottom += height
        dot = dots[cell["policy"], cell["max_concurrency"]] | {"marker": "o", "markersize": 2.4}
        below = {"transform": axes.get_xaxis_transform(), "clip_on": False, "label": "_policy"}
        axes.plot(cell["slot"], -0.06, **dot | below)
    axes.set_ylabel("round (ms)")
    _ticks(axes, cells)
    axes.tick_params(axis="x", pad=6)
    pairs = [tuple(Patch(facecolor=one) for one in both) for both in zip(_LIVE, _PREDICTED)]
    handles, names = [_entry(" ", "none", "none"), *pairs], ["live | predicted:", *PARTS]
    side_by_side = {tuple: HandlerTuple(ndivide=None, pad=0.0)}
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.01), "ncols": 4}
    axes.legend(handles, names, handler_map=side_by_side, **place, **_LEGEND)


def _ticks(axes: Axes, cells: pandas.DataFrame) -> None:
    """Name each group by its concurrency, centred below it."""
    places = cells.groupby("max_concurrency")["slot"].mean()
    last = cells["slot"].max()
    spare = max(0.0, _FEWEST_SLOTS - 1 - last) / 2
    axes.set_xlim(-0.9 - spare, last + 0.9 + spare)
    axes.set_xticks(list(places), list(map(str, places.index)))
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("requests in flight")
