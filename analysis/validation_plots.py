"""The figure of a validation: live against predicted, errors, and the parts of a round."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis.drawing import STYLE, despine, new_figure, style
from analysis.figure_files import write_figures
from analysis.look import Look, looks
from analysis.scales import short
from analysis.validation import Cell, Validation
from analysis.validation_checks import PARTS
from analysis.validation_text import caption

NAME = "predicted_vs_live"
BAND = 0.05  # the accuracy asked of a prediction
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h")  # by concurrency
_LIVE = ("0.82", "0.55", "0.2")  # parts of a round, from below: greys, and violets of no policy
_PREDICTED = ("#DAD2EC", "#9A86C8", "#43317A")
_SIDE_BY_SIDE = 24  # cells; more get a panel as wide as the figure
_FEWEST_SLOTS = 8  # of a row of cells: two cells are not drawn as two walls
_GAP = 1.0  # slots between two concurrencies
_LONGEST = 19  # characters of a name that leave room for two columns of names
_LINE_CHARS = 36


def draw_validation(validation: Validation, out: Path, command: str) -> list[Path]:
    """Write the figure in every format with its caption; InputError where ``out`` takes none."""
    with style(STYLE):
        figure = validation_figure(validation)
        return write_figures({NAME: (figure, caption(validation, command))}, out)


def validation_figure(validation: Validation) -> Figure:
    """Throughput live (x) against predicted (y); error by cell; live and predicted rounds."""
    aside = len(validation.cells) <= _SIDE_BY_SIDE
    rows = [["live", "error"], ["round", "round"]] if aside else [["live"], ["error"], ["round"]]
    figure = new_figure(3.2 if aside else 5.0)
    axes = figure.subplot_mosaic(rows, height_ratios=[1.25, 1] if aside else [1.6, 1, 1])
    known = looks(validation.policies)
    look = {policy: known[policy] for policy in validation.policies}  # in the order of tables
    sizes = validation.concurrencies
    markers = {size: _MARKERS[at % len(_MARKERS)] for at, size in enumerate(sizes)}
    _draw_live(axes["live"], validation, look, markers)
    _draw_errors(axes["error"], validation, look, markers)
    _draw_rounds(axes["round"], validation, look)
    _legends(figure, axes["round"], look, markers)
    return despine(figure)


def _draw_live(axes: Axes, validation: Validation, look: dict[str, Look], markers: dict) -> None:
    ends = _ends(validation)
    axes.fill_between(
        ends, [x * (1 - BAND) for x in ends], [x * (1 + BAND) for x in ends], color="0.8", lw=0
    )
    axes.plot(ends, ends, color="0.4", linewidth=0.7, label="_equal")
    for cell in validation.cells:
        bar = (cell.noise or 0.0) * cell.throughput
        axes.errorbar(
            cell.throughput,
            cell.predicted,
            xerr=bar or None,
            label=f"_{cell.policy}",
            elinewidth=0.7,
            **_dot(look[cell.policy], markers[cell.concurrency]),
        )
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=_subs(ends[1] / ends[0]), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("live (tokens/s)")
    axes.set_ylabel("predicted (tokens/s)")


def _ends(validation: Validation) -> list[float]:
    """Limits of both axes, with room for two ticks."""
    values = [value for cell in validation.cells for value in (cell.throughput, cell.predicted)]
    low, high = min(values) / 1.35, max(values) * 1.35
    if high < 4 * low:
        low, high = (low * high) ** 0.5 / 2, (low * high) ** 0.5 * 2
    return [low, high]


def _subs(span: float) -> tuple[float, ...]:
    """Ticks per decade whose labels have room beside one another."""
    return (1.0, 2.0, 5.0) if span < 12 else (1.0, 3.0) if span < 200 else (1.0,)


def _dot(look: Look, marker: str) -> dict:
    edge = {"mec": look.edge, "mew": 0.4, "alpha": 0.9}
    return {"color": look.colour, "marker": marker, "linestyle": "none", "markersize": 3.4} | edge


def _draw_errors(axes: Axes, validation: Validation, look: dict[str, Look], markers: dict) -> None:
    axes.axhline(0.0, color="0.4", linewidth=0.7)
    for side in (-BAND, BAND):
        axes.axhline(100 * side, color="0.6", linewidth=0.6, linestyle=":")
    tops = [100 * BAND]
    for slot, cell in _slots(validation):
        error, noise = 100 * cell.error["output_throughput"], 100 * (cell.noise or 0.0)
        axes.bar(slot, 2 * noise, 1.0, -noise, color="0.8", linewidth=0, label="_noise")
        axes.plot(slot, error, **_dot(look[cell.policy], markers[cell.concurrency]))
        tops += [abs(error), noise]
    axes.set_ylim(-1.15 * max(tops), 1.15 * max(tops))
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axes.set_ylabel("throughput\nerror (%)")
    _ticks(axes, validation)


def _draw_rounds(axes: Axes, validation: Validation, look: dict[str, Look]) -> None:
    for slot, cell in _slots(validation):
        for side, (shift, colours) in enumerate(((-0.2, _LIVE), (0.2, _PREDICTED))):
            bottom = 0.0
            for part, colour in zip(PARTS, colours, strict=True):
                height = cell.parts_ms[part][side]
                axes.bar(slot + shift, height, 0.4, bottom, color=colour, lw=0, label="_part")
                bottom += height
        below = {"transform": axes.get_xaxis_transform(), "clip_on": False, "label": "_policy"}
        axes.plot(slot, -0.06, **_dot(look[cell.policy], "o") | {"markersize": 2.4}, **below)
    axes.set_ylabel("round (ms)")
    _ticks(axes, validation)
    axes.tick_params(axis="x", pad=6)


def _slots(validation: Validation) -> list[tuple[float, Cell]]:
    """A place on the x axis for every cell: groups of one concurrency, policies in order."""
    gaps = {size: at * _GAP for at, size in enumerate(validation.concurrencies)}
    return [(at + gaps[cell.concurrency], cell) for at, cell in enumerate(validation.cells)]


def _ticks(axes: Axes, validation: Validation) -> None:
    """Name each group by its concurrency, centred below it."""
    places: dict[int, list[float]] = {}
    for slot, cell in _slots(validation):
        places.setdefault(cell.concurrency, []).append(slot)
    last = max(slots[-1] for slots in places.values())
    spare = max(0.0, _FEWEST_SLOTS - 1 - last) / 2
    axes.set_xlim(-0.9 - spare, last + 0.9 + spare)
    axes.set_xticks([sum(slots) / len(slots) for slots in places.values()], map(str, places))
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("requests in flight")


def _legends(figure: Figure, bars: Axes, look: dict[str, Look], markers: dict) -> None:
    """Policies and concurrencies above all panels, parts of a round above theirs."""
    policies = [_entry(fill(name, _LINE_CHARS), one.colour, one.edge) for name, one in look.items()]
    sizes = [_entry(f"{size} in flight", "0.3", "0.3", one) for size, one in markers.items()]
    columns = 2 if max(map(len, look)) <= _LONGEST else 1
    rows = max(ceil(len(policies) / columns), len(sizes))
    policies += [_entry(" ", "none", "none")] * (columns * rows - len(policies))
    lines = rows + sum(entry.get_label().count("\n") for entry in policies)
    figure.set_figheight(figure.get_figheight() + 0.125 * lines)
    common = {"frameon": False, "handletextpad": 0.4, "labelspacing": 0.3, "borderaxespad": 0.0}
    common |= {"handlelength": 1.0, "columnspacing": 1.0}
    top = {"loc": "outside upper center", "ncols": columns + 1}
    figure.legend(handles=policies + sizes, **top, **common)
    pairs = [tuple(Patch(facecolor=one) for one in both) for both in zip(_LIVE, _PREDICTED)]
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.01), "ncols": 4}
    handles, names = [_entry(" ", "none", "none"), *pairs], ["live | predicted:", *PARTS]
    side_by_side = {tuple: HandlerTuple(ndivide=None, pad=0.0)}
    bars.legend(handles, names, handler_map=side_by_side, **place, **common)


def _entry(label: str, colour: str, edge: str, marker: str = "o") -> Line2D:
    looks_like = {"color": colour, "mec": edge, "marker": marker, "markersize": 3.6}
    return Line2D([], [], label=label, linestyle="none", **looks_like)
