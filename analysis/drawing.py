"""What every drawing shares: the style as matplotlib takes it, lines, bands, legends, remarks.

Matplotlib and seaborn are loaded here, so only to draw. Legends stand outside the data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from textwrap import fill

import matplotlib
import seaborn
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.look import BAND, RC, SMALL, WIDTH_IN, Look

STYLE = seaborn.axes_style("whitegrid") | RC
_CROWDED = 10  # entries of a legend, from which on it is set smaller
_LINE_CHARS = 56  # that fit a legend of one column
_LINE_IN = 0.125
_REMARK_CHARS = 76
_SIDE_CHARS = 30
_STEP = 1.7  # points by which a mark below another one is larger, and a line below others wider
_MOST_STEPS = 2
MANY = 12  # policies, from which on panels are taller and lines thinner
THIN = {"linewidth": 0.8, "markersize": 2.8}


@contextmanager
def style(rc: Mapping = STYLE) -> Iterator[None]:
    """Draw in the project's style, whatever a user's own matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(rc)
        yield


def new_figure(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """An empty figure, one column wide."""
    return Figure(figsize=(width_in, height_in))


def line_style(look: Look) -> dict:
    """Of a policy's line and markers."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "linestyle": look.dash,
        "mfc": look.colour,
        "mec": look.edge,
        "mew": 0.8,
    }


def draw_line(
    axes: Axes,
    label: str,
    look: Look,
    points: Sequence[tuple[float, float]],
    below: Sequence[int] = (),
    hollow: Sequence[bool] = (),
    **more,
) -> None:
    """A policy's line, larger where later ones lie on it.

    Args:
        below: how many lie on each point. hollow: points whose marker is.
        more: of the style.
    """
    style = line_style(look) | more
    wide = {"linewidth": style.get("linewidth", RC["lines.linewidth"])}
    wide["linewidth"] += _STEP * (min(below, default=0) > 0)
    axes.plot(*zip(*points, strict=True), label=label, **style | wide)
    size = style.get("markersize", RC["lines.markersize"])
    for at, (x, y) in enumerate(points):
        steps = min(_MOST_STEPS, below[at]) if below else 0
        face = {"mfc": "white"} if hollow and hollow[at] and look.marker not in "x+" else {}
        if steps or face:
            name = "_hollow" if face else "_below"
            mark = {"markersize": size + _STEP * steps, "linestyle": "none"}
            axes.plot(x, y, label=name, **style | mark | face)


def band(
    axes: Axes,
    x: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    look: Look,
    faint: bool = False,
) -> None:
    """An interval around a line, `faint` where there are many of them."""
    alpha = BAND / 3 if faint else BAND
    axes.fill_between(x, low, high, color=look.colour, alpha=alpha, linewidth=0)


def unit_line(axes: Axes, horizontal: bool = True) -> None:
    """Dotted, where a ratio is 1."""
    draw = axes.axhline if horizontal else axes.axvline
    draw(1.0, color="0.2", linestyle=":", linewidth=0.9, label="_baseline")


def plain(text: str) -> str:
    """A name as matplotlib prints it letter by letter: a $ begins no formula."""
    return text.replace("$", r"\$")


def side_label(text: str) -> str:
    """A name beside a bar, cut in its middle where it would leave no room for the bar."""
    cut = text if len(text) <= _SIDE_CHARS else f"{text[: _SIDE_CHARS - 12]}…{text[-11:]}"
    return plain(cut)


def legend(figure: Figure, looks: Mapping[str, Look], hollow: Collection[str] = ()) -> None:
    """One compact legend above the panels, where it covers no data; the figure grows for it.

    Args:
        hollow: names all of whose markers are hollow, and so theirs here.
    """

    def handle(name: str) -> Line2D:
        face = {"mfc": "white"} if name in hollow else {}
        return Line2D([], [], **line_style(looks[name]) | face)

    _legend(figure, list(looks), handle)


def bar_legend(figure: Figure, looks: Mapping[str, Look]) -> None:
    """The same for bars."""
    styles = {name: {"facecolor": look.colour, "edgecolor": look.edge, "linewidth": 0.4}
              for name, look in looks.items()}  # fmt: skip
    _legend(figure, list(looks), lambda name: Patch(**styles[name]), handlelength=1.0)


def part_legend(figure: Figure, parts: Mapping[str, dict]) -> None:
    """Of the parts of stacked bars, by their styles."""
    _legend(figure, list(parts), lambda name: Patch(**parts[name]), handlelength=1.0, most=5)


def _legend(
    figure: Figure, names: Sequence[str], handle, handlelength: float = 2.2, most: int = 3
) -> None:
    """In as many columns as fit, at most `most`."""
    size = RC["legend.fontsize"] if len(names) <= _CROWDED else SMALL
    shown = [plain(name) for name in names]
    handles = [handle(name) for name in names]
    columns = _columns(figure, shown, handles, handlelength, size, most)
    shown = [fill(name, _LINE_CHARS) for name in shown] if columns == 1 else shown
    lines = [name.count("\n") + 1 for name in shown]
    per = ceil(len(names) / columns)
    deepest = max(sum(lines[at : at + per]) for at in range(0, len(lines), per))
    figure.set_figheight(figure.get_figheight() + _LINE_IN * deepest * size / 6.5)
    _place(figure, handles, shown, columns, handlelength, size)


def _place(figure: Figure, handles, names, columns: int, handlelength: float, size: float):
    return figure.legend(
        handles,
        names,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        handlelength=handlelength,
        fontsize=size,
        columnspacing=1.2,
        handletextpad=0.5,
        labelspacing=0.3,
        borderaxespad=0.0,
    )


def _columns(figure: Figure, names, handles, handlelength, size: float, most: int) -> int:
    """The most columns whose names fit the width without a break, at least one."""
    probe = Figure(figsize=(figure.get_figwidth(), 3.0), dpi=100)
    FigureCanvasAgg(probe)
    for columns in range(min(most, len(names)), 1, -1):
        made = _place(probe, handles, names, columns, handlelength, size)
        extent = made.get_window_extent(probe.canvas.get_renderer())
        made.remove()
        if extent.width <= 0.99 * probe.bbox.width:
            return columns
    return 1


def remark(figure: Figure, parts: Sequence[str]) -> None:
    """Say in the figure itself what must not get lost when it is pasted without its caption."""
    if parts:
        text = fill("; ".join(parts), _REMARK_CHARS)
        figure.supxlabel(text, fontsize=SMALL, color="0.4", x=0.99, ha="right")


def despine(figure: Figure) -> Figure:
    """The figure without the lines above and to the right of its panels."""
    seaborn.despine(figure)
    return figure
