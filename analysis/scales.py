"""Axes whose ticks are plain numbers, as many as have room."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log2, log10

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, NullLocator


def tick(value: float) -> float:
    """Where a tick near a mean stands: at two digits, or the value if it is whole."""
    return value if float(value).is_integer() else float(f"{value:.2g}")


def log2_ticks(axes: Axes, values: Sequence[float]) -> None:
    """A log2 x axis with a tick at every tested value that has room for its label."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    room = 0.06 * max(log2(max(values) / min(values)), 1.0)
    labelled: list[float] = []
    for value in sorted(values, key=lambda value: (not log2(value).is_integer(), value)):
        if all(abs(log2(value / other)) >= room * _width(value, other) for other in labelled):
            labelled.append(value)
    axes.xaxis.set_major_locator(FixedLocator(sorted(labelled)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if len(labelled) == len(values) == 1:  # a lone point stands in the middle
        axes.set_xlim(labelled[0] / 2, labelled[0] * 2)


def _width(value: float, other: float) -> float:
    """Of two labels, in those of two digits each."""
    return max(1.0, (len(f"{value:g}") + len(f"{other:g}") + 1) / 5)


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Plain numbers on a logarithmic axis that shows `low` to `high`: as many as have room."""
    decades = log10(high / low)
    steps = (1, 2, 5) if decades < 1.6 else (1, 3) if decades < 3 else (1,)
    tens = range(floor(log10(low)), ceil(log10(high)) + 1)
    every = (step * 10.0**ten for ten in tens for step in steps)
    ticks = [tick for tick in every if low * 0.99 <= tick <= high * 1.01]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(lambda value, _: short(value))
    axis.set_minor_locator(NullLocator())


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
    set_scale, set_lim = getattr(axes, f"set_{which}scale"), getattr(axes, f"set_{which}lim")
    set_scale("log")
    set_lim(low / pad, high * pad)
    log_ticks(getattr(axes, f"{which}axis"), low / pad, high * pad)


def count_axis(axes: Axes, values: Sequence[float]) -> None:
    """A y axis for counts from 0: linear up to 1, logarithmic above, plain numbers."""
    top = max(values, default=1.0)
    if top < 10:
        axes.set_ylim(0, top * 1.08)
        return
    axes.set_yscale("symlog", base=2, linthresh=1.0, linscale=0.8)
    axes.set_ylim(-0.08, top * 1.25)
    powers = [2**power for power in range(20) if 2**power <= top * 1.25]
    axes.yaxis.set_major_locator(FixedLocator([0, *powers]))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def short(value: float) -> str:
    """3k for 3000 and 2M for 2,000,000, in every figure: longer labels would touch."""
    size = round(value, 9)  # ticks are sums of steps
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if abs(size) >= unit:
            return f"{size / unit:g}{name}"
    return f"{size:g}"
