"""What every drawing shares: the style as matplotlib takes it, lines, axes, legends, remarks.

Matplotlib and seaborn are loaded here, so only to draw. Legends stand outside the data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil, floor, log2, log10
from textwrap import fill

import matplotlib
import numpy as np
import pandas
import seaborn
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator

from analysis.look import BAND, RC, SMALL, WIDTH_IN, Look

STYLE = seaborn.axes_style("whitegrid") | RC
MANY = 12  # policies, from which on panels are taller and lines thinner
NEAR = 0.004  # relative; about the width of a line: nearer points lie on one another
_THIN = {"linewidth": 0.8, "markersize": 2.8}
_CROWDED = 10  # entries of a legend, from which on it is set smaller
_LINE_CHARS, _REMARK_CHARS, _SIDE_CHARS = 56, 76, 30  # that fit a line
_LINE_IN = 0.125
_STEP = 1.7  # points by which a mark below another one is larger, and a line below others wider
_MOST_STEPS = 2
_NAMED = 3  # groups of equal lines that are spelled out


@contextmanager
def style() -> Iterator[None]:
    """Draw in the project's style, whatever a user's own matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def new_figure(height_in: float) -> Figure:
    """An empty figure, one column wide."""
    return Figure(figsize=(WIDTH_IN, height_in))


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


def draw_lines(axes: Axes, points: pandas.DataFrame, look: Mapping[str, Look], **more) -> None:
    """A line for each ``label``, in the order in which they stand: the last is on top.

    Args:
        points: columns ``label``, ``x``, ``y``; with ``low`` and ``high`` a band around the line;
            with ``hollow`` points whose marker is.
        more: of the style of all lines.

    Where later lines have a point too, a mark is larger and sticks out; a line all of whose points
    lie below others is wider.
    """
    many = points["label"].nunique() > MANY
    below = covered(points)
    for label, own in points.groupby("label", sort=False):
        style = line_style(look[label]) | (_THIN if many else {}) | more
        width = style.get("linewidth", RC["lines.linewidth"])
        wide = {"linewidth": width + _STEP * (below[own.index].min() > 0)}
        axes.plot(own["x"], own["y"], label=label, **style | wide)
        size = style.get("markersize", RC["lines.markersize"])
        for at, point in own.iterrows():
            steps, hollow = min(_MOST_STEPS, below[at]), point.get("hollow", False)
            if steps or hollow:
                mark = {"markersize": size + _STEP * steps, "linestyle": "none"}
                mark |= {"mfc": "white"} if hollow else {}
                name = "_hollow" if hollow else "_below"
                axes.plot(point["x"], point["y"], label=name, **style | mark)
        if "low" in own and (own["low"] != own["high"]).any():
            alpha = BAND / 3 if many else BAND
            band = {"color": look[label].colour, "alpha": alpha, "linewidth": 0}
            axes.fill_between(own["x"], own["low"], own["high"], **band)


def covered(points: pandas.DataFrame) -> pandas.Series:
    """For every point of lines: how many later lines have a point there."""
    place = pandas.factorize(points["label"])[0]
    x, y = (points[name].to_numpy(float)[:, None] for name in "xy")
    later = _near(x, x.T) & _near(y, y.T) & (place > place[:, None])
    return pandas.Series([len(set(place[row])) for row in later], points.index, dtype=int)


def _near(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return abs(one - other) <= NEAR * np.maximum(abs(one), abs(other))


def equal_lines(panels: Iterable[pandas.DataFrame]) -> list[list[str]]:
    """Groups of labels whose lines are the same in every panel; a panel may lack some labels."""
    drawn = [panel.set_index("label")[["x", "y"]].astype(float) for panel in panels]

    def same(one: str, other: str) -> bool:
        lines = [
            [panel[panel.index == name].to_numpy() for name in (one, other)] for panel in drawn
        ]
        return all(a.shape == b.shape and _near(a, b).all() for a, b in lines)

    groups: list[list[str]] = []
    for name in dict.fromkeys(name for panel in drawn for name in panel.index):
        alike = next((group for group in groups if same(group[0], name)), None)
        if alike is None:
            groups.append([name])
        else:
            alike.append(name)
    return [group for group in groups if len(group) > 1]


def equal_words(panels: Iterable[pandas.DataFrame]) -> list[str]:
    """What a figure itself says of lines that are the same; nothing where there are none."""
    groups = equal_lines(panels)
    more = [f"{len(groups) - _NAMED} more"] if len(groups) > _NAMED else []
    found = [" = ".join(group) for group in groups[:_NAMED]] + more
    return [f"same line: {', '.join(found)}"] if found else []


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


# ---------------------------------------------------------------- legends and remarks


def legend(figure: Figure, looks: Mapping[str, Look], hollow: Collection[str] = ()) -> None:
    """One compact legend above the panels, where it covers no data; the figure grows for it.

    Args:
        hollow: names all of whose markers are hollow, and so theirs here.
    """
    faces = {name: {"mfc": "white"} for name in hollow}
    lines = {name: line_style(look) | faces.get(name, {}) for name, look in looks.items()}
    _legend(figure, {name: Line2D([], [], **style) for name, style in lines.items()})


def part_legend(figure: Figure, parts: Mapping[str, dict], most: int = 5) -> None:
    """Of bars, or of the parts of stacked ones, by their styles."""
    handles = {name: Patch(**style) for name, style in parts.items()}
    _legend(figure, handles, handlelength=1.0, most=most)


def _legend(
    figure: Figure, handles: Mapping[str, Artist], handlelength: float = 2.2, most: int = 3
) -> None:
    """In as many columns as fit, at most `most`."""
    size = RC["legend.fontsize"] if len(handles) <= _CROWDED else SMALL
    names = [plain(name) for name in handles]
    probe = Figure(figsize=(figure.get_figwidth(), 3.0), dpi=100)
    FigureCanvasAgg(probe)

    def place(page: Figure, columns: int):
        return page.legend(
            handles.values(),
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

    for columns in range(min(most, len(names)), 0, -1):
        made = place(probe, columns)
        extent = made.get_window_extent(probe.canvas.get_renderer())
        made.remove()
        if extent.width <= 0.99 * probe.bbox.width:
            break
    names = [fill(name, _LINE_CHARS) for name in names] if columns == 1 else names
    lines = [name.count("\n") + 1 for name in names]
    per = ceil(len(names) / columns)
    deepest = max(sum(lines[at : at + per]) for at in range(0, len(lines), per))
    figure.set_figheight(figure.get_figheight() + _LINE_IN * deepest * size / 6.5)
    place(figure, columns)


def finish(
    figure: Figure,
    panels: Sequence[pandas.DataFrame],
    look: Mapping[str, Look],
    remarks: Sequence[str] = (),
) -> Figure:
    """Name the lines of the panels, whole ones hollow where all their marks are, and despine.

    remarks: what the figure itself says, beside lines that are the same.
    """
    every = pandas.concat(panels)
    hollow = every["hollow"] if "hollow" in every else every["x"] != every["x"]
    whole = hollow.groupby(every["label"], sort=False).all()
    legend(figure, {label: look[label] for label in whole.index}, set(whole.index[whole]))
    return despine(figure, [*remarks, *equal_words(panels)])


def despine(figure: Figure, remarks: Sequence[str] = ()) -> Figure:
    """The figure without the lines above and to the right of its panels.

    remarks: what must not get lost when it is pasted without its caption.
    """
    if remarks:
        text = fill("; ".join(remarks), _REMARK_CHARS)
        figure.supxlabel(text, fontsize=SMALL, color="0.4", x=0.99, ha="right")
    seaborn.despine(figure)
    return figure


# ---------------------------------------------------------------- axes with plain numbers


def tick(value: float) -> float:
    """Where a tick near a mean stands: at two digits, or the value if it is whole."""
    return value if float(value).is_integer() else float(f"{value:.2g}")


def log2_ticks(axes: Axes, values: Iterable[float]) -> None:
    """A log2 x axis with a tick at every tested value that has room for its label."""
    values = sorted(set(values))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    room = 0.06 * max(log2(values[-1] / values[0]), 1.0)

    def apart(one: float, other: float) -> bool:
        """Whether two labels have room; `room` is for two digits each."""
        width = max(1.0, (len(f"{one:g}") + len(f"{other:g}") + 1) / 5)
        return abs(log2(one / other)) >= room * width

    labelled: list[float] = []
    for value in sorted(values, key=lambda value: (not log2(value).is_integer(), value)):
        if all(apart(value, other) for other in labelled):
            labelled.append(value)
    axes.xaxis.set_major_locator(FixedLocator(sorted(labelled)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if len(labelled) == len(values) == 1:  # a lone point stands in the middle
        axes.set_xlim(labelled[0] / 2, labelled[0] * 2)


def powers_of_2(low: float, high: float) -> list[float]:
    """Those from `low` to `high`."""
    return [2.0**power for power in range(24) if low <= 2**power <= high * 1.01]


def short_labels(axes: Axes, which: str) -> None:
    """Labels of a linear axis that reaches thousands as `short` has them."""
    if getattr(axes, f"get_{which}lim")()[1] >= 1000:
        getattr(axes, f"{which}axis").set_major_formatter(lambda value, _: short(value))


def log_axis(axes: Axes, which: str, values: Sequence[float], ratio: float = 5.0) -> None:
    """Make an axis logarithmic where its values span more than `ratio`: equal ratios, equal steps.

    Args:
        which: "x" or "y". values: what is drawn.
    """
    low, high = min(values, default=0.0), max(values, default=0.0)
    short_labels(axes, which)
    if low <= 0 or high < ratio * low:
        return
    pad = (high / low) ** 0.05
    low, high = low / pad, high * pad
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    # Plain numbers, as many as have room.
    decades = log10(high / low)
    steps = (1, 2, 5) if decades < 1.6 else (1, 3) if decades < 3 else (1,)
    tens = range(floor(log10(low)), ceil(log10(high)) + 1)
    every = (step * 10.0**ten for ten in tens for step in steps)
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(FixedLocator([one for one in every if low * 0.99 <= one <= high * 1.01]))
    axis.set_major_formatter(lambda value, _: short(value))
    axis.set_minor_locator(NullLocator())


def count_axis(axes: Axes, values: Sequence[float]) -> None:
    """A y axis for counts from 0: linear up to 1, logarithmic above, plain numbers."""
    top = max(values, default=1.0)
    if top < 10:
        axes.set_ylim(0, top * 1.08)
        return
    axes.set_yscale("symlog", base=2, linthresh=1.0, linscale=0.8)
    axes.set_ylim(-0.08, top * 1.25)
    axes.yaxis.set_major_locator(FixedLocator([0, *powers_of_2(1, top * 1.25 / 1.01)]))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def short(value: float) -> str:
    """3k for 3000 and 2M for 2,000,000, in every figure: longer labels would touch."""
    size = round(value, 9)  # ticks are sums of steps
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if abs(size) >= unit:
            return f"{size / unit:g}{name}"
    return f"{size:g}"
