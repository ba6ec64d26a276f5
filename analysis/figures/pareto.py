"""Tokens per second of a GPU against tokens per second of a user, over concurrency."""

from __future__ import annotations

from collections.abc import Iterator

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from analysis.compare.comparison import Comparison
from analysis.compare.loads import Load
from analysis.figures import drawing
from analysis.figures.parts import HOLLOW, Drawing, Missing, Setting
from analysis.look import SMALL
from analysis.read.runs import numbers

_TPOT = "median_tpot_ms"


def draw_paretos(setting: Setting) -> Iterator[Drawing]:
    """One figure over the closed loops, and one over each way that requests arrive."""
    comparison = setting.comparison
    rates = per_gpu_rates(comparison.runs)
    per_gpu = bool(rates.notna().all())
    spots = _spots(comparison, rates if per_gpu else comparison.runs["output_throughput"])
    every = [
        (way, rows.rename(columns={"x": "place"}).join(spots, how="inner"))
        for way, rows in comparison.axes()
    ]
    found = [(way, own) for way, own in every if own["place"].nunique() > 1]
    if not found:
        raise Missing(f"no two concurrencies, or request rates, with a {_TPOT}")
    several = sum(not way.closed for way, _ in found) > 1
    for way, own in found:
        name = "pareto" if way.closed else "pareto_of_request_rates"
        name += f".{way.axis_name}" if several and not way.closed else ""
        yield setting.drawing(name, _figure(setting, own, per_gpu), *_words(way, own, per_gpu))


def _words(way: Load, spots: pandas.DataFrame, per_gpu: bool) -> tuple[str, list[str]]:
    over = "concurrency" if way.closed else f"the request rate{way.axis_words}"
    text = (
        f"Tokens/s of {'a GPU' if per_gpu else 'the whole server'} against tokens/s of a user "
        f"(1000 over the median TPOT of a run's requests in ms), over {over}; means over seeds."
    )
    notes = [
        f"Numbers: {'requests in flight' if way.closed else 'requests/s'} at the points that no "
        "other exceeds in both (grey line: their frontier)."
    ]
    if not per_gpu:
        notes.append("The profile does not say how many GPUs it was timed on.")
    return text, notes + ([HOLLOW] if spots["hollow"].any() else [])


def per_gpu_rates(runs: pandas.DataFrame) -> pandas.Series:
    """Output tokens/s of each run over all GPUs, of all replicas; NaN where they are not known."""
    gpus, replicas = numbers(runs, "latency.num_gpus"), numbers(runs, "server.replicas").fillna(1)
    per_gpu = runs["output_throughput"] / (gpus.where(gpus > 0) * replicas)
    return numbers(runs, "output_throughput_per_gpu").fillna(per_gpu)


def _spots(comparison: Comparison, rates: pandas.Series) -> pandas.DataFrame:
    """By row ``x``, tokens/s of a user, and ``y``, those of a GPU: means over seeds."""
    tpot = numbers(comparison.runs, _TPOT)
    user = comparison.estimates(1000 / tpot.where(tpot > 0))
    rate = comparison.estimates(rates)
    return pandas.DataFrame({"x": user["mean"], "y": rate["mean"]}).dropna()


def frontier(spots: pandas.DataFrame) -> pandas.DataFrame:
    """Those that no other one exceeds in one rate and equals or exceeds in the other, by user."""
    falling = spots.sort_values(["x", "y"], ascending=False, kind="stable")
    before = falling["y"].cummax().shift(fill_value=-1.0)
    return falling[falling["y"] > before][::-1]


def _figure(setting: Setting, spots: pandas.DataFrame, per_gpu: bool) -> Figure:
    """A line per policy, from many requests in flight to few, and the frontier behind all."""
    figure = drawing.new_figure(2.5)
    axes = figure.subplots()
    best = frontier(spots)
    wide = {"color": "0.8", "linewidth": 4.0, "solid_capstyle": "round", "label": "_frontier"}
    axes.plot(best["x"], best["y"], zorder=1, **wide)
    drawing.draw_lines(axes, spots, setting.look)
    drawing.log_axis(axes, "y", spots["y"])
    drawing.log_axis(axes, "x", spots["x"], ratio=20.0)
    _name(axes, best)
    axes.set_xlabel("tokens/s/user (1000 / median TPOT in ms)")
    axes.set_ylabel("tokens/s/GPU" if per_gpu else "tokens/s (whole server)")
    return drawing.finish(figure, [spots], setting.look, setting.remarks(spots["hollow"]))


def _name(axes: Axes, best: pandas.DataFrame) -> None:
    """Write the load beside each point of the frontier, above and to the right of everything."""
    for spot in best.drop_duplicates("place").itertuples():
        axes.annotate(
            f"{spot.place:g}",
            (spot.x, spot.y),
            xytext=(3.5, 2.5),
            textcoords="offset points",
            fontsize=SMALL,
            color="0.25",
            zorder=6,  # with a rim of white, to be read across lines
            path_effects=[withStroke(linewidth=1.4, foreground="white")],
        )
