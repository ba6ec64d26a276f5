"""Throughput and goodput against the load, and tokens/s of a GPU against those of a user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from analysis.compare.loads import Load
from analysis.compare.metrics import SPEEDUP
from analysis.compare.settings import objective_words
from analysis.figures import drawing
from analysis.figures.draw import BANDS, HOLLOW, Drawing, Missing, Setting
from analysis.look import SMALL
from analysis.read.runs import numbers
from analysis.read.tables import REQUESTS, read_frame, window_of
from traces.common.columns import FLAGS, SECONDS

_GOODPUT, _TPOT = "request_goodput", "median_tpot_ms"
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
        what, notes = "Output throughput of the whole server (tokens/s)", _notes(rows)
        if rows["x"].nunique() == 1:
            figure.axes[0].set_ylim(bottom=0)
        if len(ratio):
            drawing.unit_line(figure.axes[1])
            _within(figure.axes[1], ratio["mean"])
            what += f" and its ratio to that of {base}, paired by seed (dotted line: 1),"
        else:
            notes.insert(1 if rows["hollow"].any() else 0,
                f"No speedup: no {base} run of this setting at these loads.")  # fmt: skip
        own = rate.loc[rows.index]
        low, high = own["mean"].min() / _BEYOND, own["mean"].max() * _BEYOND
        seen = [*own["mean"], *own["low"].clip(low, high), *own["high"].clip(low, high)]
        drawing.log_axis(figure.axes[0], "y", seen)
        yield _drawing(setting, "throughput", way, figure, what, notes)


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
    said = " and ".join(
        f"{name.upper()} ≤ {value:g} ms" for name, value in limits.items() if value is not None
    )
    for way, rows in found:
        panels = {"goodput (requests/s)": good}
        if within.loc[rows.index, "mean"].notna().any():
            panels["requests within\nobjectives (%)"] = within
        figure = _draw_load(setting, way, rows, panels, [f"objectives: {said}"])
        for at, axes in enumerate(figure.axes):
            axes.set_ylim(0, 105 if at else None)
            for line in axes.lines:  # marks at 0 whole
                line.set_clip_on(False)
        what = (
            "Requests per second, and share of requests, that meet every objective "
            f"({objective_words(limits)}, in ms)"
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
        yield _drawing(setting, "goodput", way, figure, what, notes)


def _notes(rows: pandas.DataFrame) -> list[str]:
    """How to read the marks."""
    bands = (rows["count"] > 1).any()
    return [*([HOLLOW] if rows["hollow"].any() else []), *([BANDS] if bands else [])]


def _drawing(
    setting: Setting, of: str, way: Load, figure: Figure, what: str, notes: Sequence[str]
) -> Drawing:
    name = "concurrency" if way.closed else f"request_rate.{way.axis_name}"
    axis = "concurrency" if way.closed else "request rate"
    sentence = f"{what} against {axis}{way.axis_words}."
    return setting.drawing(f"{of}_vs_{name}", figure, sentence, notes)


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
    many = rows["label"].nunique() > drawing.MANY
    figure = drawing.new_figure(0.65 + (1.9 if many else 1.45) * len(panels))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    every = []
    for each, (label, found) in zip(axes, panels.items(), strict=True):
        points = rows[["label", "x", "hollow"]].join(found).dropna(subset="mean")
        every.append(points.rename(columns={"mean": "y"}))
        drawing.draw_lines(each, every[-1], setting.look)
        drawing.short_labels(each, "y")
        each.set_ylabel(drawing.plain(label))
    drawing.log2_ticks(axes[-1], rows["x"])
    closed, rate = "concurrency (requests in flight)", "request rate (requests/s)"
    axes[-1].set_xlabel(closed if way.closed else rate)
    return drawing.finish(figure, every, setting.look, [*more, *setting.remarks(rows["hollow"])])


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
    measured = columns["measured"].sum()
    judged = measured + (columns["rejected"] & columns["arrival_s"].between(*ends)).sum()
    return measured / judged if judged else float("nan")


# ---------------------------------------------------------------- tokens/s of a GPU and of a user


def draw_paretos(setting: Setting) -> Iterator[Drawing]:
    """One figure over the closed loops, and one over each way that requests arrive."""
    comparison = setting.comparison
    rates = per_gpu_rates(comparison.runs)
    per_gpu = bool(rates.notna().all())
    rates = rates if per_gpu else comparison.runs["output_throughput"]
    tpot = numbers(comparison.runs, _TPOT)
    user = comparison.estimates(1000 / tpot.where(tpot > 0))["mean"]
    spots = pandas.DataFrame({"x": user, "y": comparison.estimates(rates)["mean"]}).dropna()
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
        over = "concurrency" if way.closed else f"the request rate{way.axis_words}"
        text = (
            f"Tokens/s of {'a GPU' if per_gpu else 'the whole server'} against tokens/s of a user "
            f"(1000 over the median TPOT of a run's requests in ms), over {over}; means over seeds."
        )
        what = "requests in flight" if way.closed else "requests/s"
        points = "at the points that no other exceeds in both (grey line: their frontier)."
        notes = [f"Numbers: {what} {points}"]
        if not per_gpu:
            notes.append("The profile does not say how many GPUs it was timed on.")
        notes += [HOLLOW] if own["hollow"].any() else []
        yield setting.drawing(name, _draw_pareto(setting, own, per_gpu), text, notes)


def per_gpu_rates(runs: pandas.DataFrame) -> pandas.Series:
    """Output tokens/s of each run over all GPUs, of all replicas; NaN where they are not known."""
    gpus, replicas = numbers(runs, "latency.num_gpus"), numbers(runs, "server.replicas").fillna(1)
    per_gpu = runs["output_throughput"] / (gpus.where(gpus > 0) * replicas)
    return numbers(runs, "output_throughput_per_gpu").fillna(per_gpu)


def frontier(spots: pandas.DataFrame) -> pandas.DataFrame:
    """Those that no other one exceeds in one rate and equals or exceeds in the other, by user."""
    falling = spots.sort_values(["x", "y"], ascending=False, kind="stable")
    before = falling["y"].cummax().shift(fill_value=-1.0)
    return falling[falling["y"] > before][::-1]


def _draw_pareto(setting: Setting, spots: pandas.DataFrame, per_gpu: bool) -> Figure:
    """A line per policy, from many requests in flight to few, and the frontier behind all."""
    figure = drawing.new_figure(2.5)
    axes = figure.subplots()
    best = frontier(spots)
    wide = {"color": "0.8", "linewidth": 4.0, "solid_capstyle": "round", "label": "_frontier"}
    axes.plot(best["x"], best["y"], zorder=1, **wide)
    drawing.draw_lines(axes, spots, setting.look)
    drawing.log_axis(axes, "y", spots["y"])
    drawing.log_axis(axes, "x", spots["x"], ratio=20.0)
    # The load beside each point of the frontier, above and to the right of everything.
    rim = [withStroke(linewidth=1.4, foreground="white")]  # to be read across lines
    text = {"textcoords": "offset points", "fontsize": SMALL, "color": "0.25", "zorder": 6}
    for spot in best.drop_duplicates("place").itertuples():
        place = (spot.x, spot.y)
        axes.annotate(f"{spot.place:g}", place, xytext=(3.5, 2.5), path_effects=rim, **text)
    axes.set_xlabel("tokens/s/user (1000 / median TPOT in ms)")
    axes.set_ylabel("tokens/s/GPU" if per_gpu else "tokens/s (whole server)")
    return drawing.finish(figure, [spots], setting.look, setting.remarks(spots["hollow"]))
