"""Throughput, and goodput, against concurrency or the request rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.compare.loads import Load
from analysis.compare.metrics import SPEEDUP
from analysis.compare.settings import objective_words
from analysis.figures import drawing
from analysis.figures.parts import BANDS, HOLLOW, Drawing, Missing, Setting
from analysis.read.runs import numbers
from analysis.read.tables import REQUESTS, read_frame, window_of
from traces.common.columns import FLAGS, SECONDS

_GOODPUT = "request_goodput"
_COLUMNS = {"arrival_s": SECONDS, "measured": FLAGS, "rejected": FLAGS}
_BEYOND = 1.5  # times the outermost means, up to which an axis shows intervals


def draw_throughputs(setting: Setting) -> Iterator[Drawing]:
    """One figure per load axis: throughput and, where a baseline ran, the ratio to it below."""
    comparison = setting.comparison
    base, rate = comparison.baseline, comparison.estimates("output_throughput")
    # The baseline itself is the dotted line.
    speedup = comparison.estimates(SPEEDUP)[comparison.rows["label"] != base]
    found = list(comparison.axes())
    if not found:
        raise Missing("no run has a concurrency or a request rate: all arrivals come at one time")
    for way, rows in found:
        ratio = speedup.reindex(rows.index).dropna(subset="mean")
        panels = {"output (tokens/s)": rate}
        panels |= {f"speedup over\n{base} (×)": ratio} if len(ratio) else {}
        figure = _draw_load(setting, way, rows, panels)
        text = "Output throughput of the whole server (tokens/s)"
        notes = _notes(rows)
        if rows["x"].nunique() == 1:
            figure.axes[0].set_ylim(bottom=0)
        if len(ratio):
            drawing.unit_line(figure.axes[1])
            _within(figure.axes[1], ratio["mean"])
            text += f" and its ratio to that of {base}, paired by seed (dotted line: 1),"
        else:
            notes.insert(1 if rows["hollow"].any() else 0,
                f"No speedup: no {base} run of this setting at these loads.")  # fmt: skip
        drawing.log_axis(figure.axes[0], "y", _seen(rate.loc[rows.index]))
        sentence = f"{text} against {_axis(way)}{way.axis_words}."
        yield setting.drawing(f"throughput_vs_{_name(way)}", figure, sentence, notes)


def draw_goodputs(setting: Setting) -> Iterator[Drawing]:
    """One figure per load axis; a setting has one set of objectives."""
    comparison = setting.comparison
    limits, good = comparison.objectives, comparison.estimates(_GOODPUT)
    share = attained(comparison.runs)
    within = comparison.estimates(100 * share)
    found = [(way, rows[good.loc[rows.index, "mean"].notna()]) for way, rows in comparison.axes()]
    found = [(way, rows) for way, rows in found if len(rows)]
    if not found or not limits:
        raise Missing('no run has objectives: goodput="tpot:50 e2el:2000"')
    for way, rows in found:
        panels = {"goodput (requests/s)": good}
        if within.loc[rows.index, "mean"].notna().any():
            panels["requests within\nobjectives (%)"] = within
        said = " and ".join(
            f"{name.upper()} ≤ {value:g} ms" for name, value in limits.items() if value is not None
        )
        figure = _draw_load(setting, way, rows, panels, [f"objectives: {said}"])
        for axes in figure.axes:
            axes.set_ylim(bottom=0)
            for line in axes.lines:  # marks at 0 whole
                line.set_clip_on(False)
        for axes in figure.axes[1:]:
            axes.set_ylim(top=105)
        text = (
            "Requests per second, and share of requests, that meet every objective "
            f"({objective_words(limits)}, in ms) against {_axis(way)}{way.axis_words}."
        )
        notes = _notes(rows)
        if rows["rejected"].any():
            rejecting = comparison.runs["row"].isin(rows.index[rows["rejected"] > 0])
            missing = share[rejecting].isna().any()
            notes[-1:-1] = [
                "Shares are of the requests measured, or rejected in the measured window; rejected "
                "ones meet no objective.",
                *(["No share where the table of the requests is missing."] if missing else []),
            ]
        yield setting.drawing(f"goodput_vs_{_name(way)}", figure, text, notes)


def _axis(way: Load) -> str:
    return "concurrency" if way.closed else "request rate"


def _name(way: Load) -> str:
    return "concurrency" if way.closed else f"request_rate.{way.axis_name}"


def _notes(rows: pandas.DataFrame) -> list[str]:
    """How to read the marks."""
    bands = (rows["count"] > 1).any()
    return [*([HOLLOW] if rows["hollow"].any() else []), *([BANDS] if bands else [])]


def _draw_load(
    setting: Setting,
    way: Load,
    rows: pandas.DataFrame,
    panels: Mapping[str, pandas.DataFrame],
    more: Sequence[str] = (),
) -> Figure:
    """One panel for each y label with its estimates above a common load axis, with one legend.

    more: further remarks.
    """
    figure = drawing.new_figure(
        0.65 + (1.9 if rows["label"].nunique() > drawing.MANY else 1.45) * len(panels)
    )
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    every = []
    for each, (label, found) in zip(axes, panels.items(), strict=True):
        points = rows[["label", "x", "hollow"]].join(found).dropna(subset="mean")
        every.append(points.rename(columns={"mean": "y"}))
        drawing.draw_lines(each, every[-1], setting.look)
        drawing.short_labels(each, "y")
        each.set_ylabel(drawing.plain(label))
    drawing.log2_ticks(axes[-1], rows["x"])
    axes[-1].set_xlabel(
        "concurrency (requests in flight)" if way.closed else "request rate (requests/s)"
    )
    return drawing.finish(figure, every, setting.look, [*more, *setting.remarks(rows["hollow"])])


def _seen(found: pandas.DataFrame) -> list[float]:
    """Means, and the ends of intervals as far as they do not flatten what they surround."""
    low, high = found["mean"].min() / _BEYOND, found["mean"].max() * _BEYOND
    return [*found["mean"], *found["low"].clip(low, high), *found["high"].clip(low, high)]


def _within(axes: Axes, means: pandas.Series) -> None:
    """Room around the line at 1; wide intervals of few seeds are cut off rather than flatten."""
    least, most = min(means.min(), 1.0), max(means.max(), 1.0)
    edge, room = 0.06 * (most - least), 0.25 * (most - least) + 0.05
    low, high = axes.get_ylim()
    low, high = min(low, least - edge), max(high, most + edge)
    axes.set_ylim(max(low, least - room, 0), min(high, most + room))


def attained(runs: pandas.DataFrame) -> pandas.Series:
    """Share of each run's requests in the window that meet the objectives, rejected ones counted.

    NaN where it is not known how many requests were measured beside those rejected.
    """
    rate = numbers(runs, "request_throughput")
    share = numbers(runs, _GOODPUT) / rate.where(rate > 0)
    for at in runs.index[runs["rejected"] > 0]:
        share[at] *= _measured_share(runs.loc[at])
    return share


def _measured_share(run: pandas.Series) -> float:
    """Requests measured over those measured or rejected in the window."""
    data, path = run["data"], run["path"].with_name(REQUESTS)
    window = data.get("window") or {}
    if not path.is_file():
        measured = window.get("requests") if window.get("kind") == "whole run" else None
        return float("nan") if measured is None else measured / (measured + run["rejected"])
    ends = window_of(data)
    if ends is None:
        return float("nan")
    columns = read_frame(path, _COLUMNS, "the requests", data["num_prompts"])
    inside = columns["arrival_s"].between(*ends)
    measured = columns["measured"].sum()
    judged = measured + (columns["rejected"] & inside).sum()
    return measured / judged if judged else float("nan")
