"""Where a step's time goes: draft, verify (and the padding in it), host, prefill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas
from matplotlib.figure import Figure

from analysis.compare.comparison import Comparison
from analysis.figures import drawing
from analysis.figures.draw import Drawing, Missing, Setting
from analysis.look import SMALL
from analysis.read.runs import numbers
from analysis.read.tables import STEPS, spent_in_window, steps_in_window

_MARK = {"markersize": 3, "mew": 0.6, "linestyle": "-"}
_READABLE = 4  # times the shortest of the loads' longest bars, up to which they share a scale
# No colour of a policy: the violets of predicted rounds, and grey for what is not decoding.
PARTS = {
    "draft": {"facecolor": "#DAD2EC"},
    "verify": {"facecolor": "#9A86C8"},
    "padding": {"facecolor": "#9A86C8", "hatch": "//////", "edgecolor": "white", "linewidth": 0},
    "host": {"facecolor": "#43317A"},
    "prefill": {"facecolor": "0.7"},
}


def draw_times(setting: Setting) -> Iterator[Drawing]:
    """One figure per load, on one scale where all of them can be read on it."""
    parts = round_parts(setting.comparison)
    every = [
        (suffix, load, rows, parts.loc[parts.index.intersection(rows.index, sort=False)])
        for suffix, load, rows in setting.by_load()
    ]
    every = [one for one in every if len(one[-1])]
    if not every:
        raise Missing(f"no summary has step_ms, and {STEPS} where prompts are read whole")
    longest = [found[[*PARTS]].sum(axis=1).max() for *_, found in every]
    shared = max(longest) <= _READABLE * min(longest)
    for own, (suffix, load, rows, found) in zip(longest, every, strict=True):
        text = (
            f"Mean time of a step by part (ms) at {load.title}, over the window and all seeds; "
            "the number is their sum."
        )
        notes = list(_notes(setting.comparison, rows, found))
        if len(every) > 1:
            notes.append(f"Scale: {'that of every load' if shared else 'of this load alone'}.")
        bars = found.assign(label=rows["label"])
        figure = _figure(setting, bars, max(longest) if shared else own)
        yield setting.drawing(f"time_of_a_round{suffix}", figure, text, notes)


def _notes(
    comparison: Comparison, rows: pandas.DataFrame, found: pandas.DataFrame
) -> Iterator[str]:
    runs = comparison.runs[comparison.runs["row"].isin(rows.index)]
    if (found["padding"] > 0).any():
        yield (
            "Padding: the share of the verified tokens that is padding (up to a captured graph or "
            "the widest request), taken of the time to verify."
        )
    elif numbers(runs, "padding_share").isna().all():
        yield "Padding is not known."
    if (found["prefill"] > 0).any():
        yield (
            "Prefill: chunks read in steps, and prompts read between them, with those read again "
            "after a preemption, spread over the steps. Time without a request is left out."
        )
    elif comparison.first.get("ttft_note") == "queue only":
        yield "Prefill costs nothing: the latency profile has no prefill table."
    lost = list(rows.loc[rows.index.difference(found.index), "label"])
    if lost:
        yield f"Not drawn, since the parts are not known: {', '.join(lost)}."
    beside = list(rows.loc[found.index[found["hidden"] > 0.005], "label"])
    if beside:
        yield f"Parts that run side by side count once in the sum: {', '.join(beside)}."


def round_parts(comparison: Comparison) -> pandas.DataFrame:
    """Milliseconds by part, means over seeds, by row of the comparison.

    ``total`` beside them, and the share that is ``hidden`` behind other parts. Rows without known
    parts are left out.
    """
    runs = comparison.runs
    step = {name: numbers(runs, f"step_ms.{name}") for name in (*PARTS, "total")}
    chunks = step["prefill"].fillna(0.0)
    padding = step["verify"] * numbers(runs, "padding_share").fillna(0.0)
    between = [_prefill_between(*run) for run in zip(runs["path"], runs["data"], strict=True)]
    between = pandas.Series(between, runs.index, dtype=float)
    seen = step["draft"] + step["verify"] + step["host"] + chunks
    hidden = (seen / step["total"].where(step["total"] > 0) - 1).clip(lower=0).fillna(0.0)
    parts = pandas.DataFrame({
        "draft": step["draft"],
        "verify": step["verify"] - padding,
        "padding": padding,
        "host": step["host"],
        "prefill": chunks + between,
        "total": step["total"] + between,
        "hidden": hidden,
    })  # fmt: skip
    return parts.dropna().groupby(runs["row"]).mean()


def _prefill_between(path, data: Mapping) -> float | None:
    """Milliseconds of prompts read whole between steps, for each step of the window.

    With those read again after a preemption, which ``prefill_ms_total`` leaves out. None where
    files and keys do not say.
    """
    spent_ms, server = data.get("prefill_ms_total"), data.get("server") or {}
    known = isinstance(spent_ms, int | float) and not isinstance(spent_ms, bool)
    if not (known and spent_ms) or server.get("prefill", "whole") != "whole" or server.get("mixed"):
        return 0.0
    if data.get("live"):  # its steps have work of the host between them
        steps = steps_in_window(path, data)
        return spent_ms / steps if steps else None
    spent = spent_in_window(path, data)
    return 1e3 * spent.between_s / spent.steps if spent is not None and spent.steps else None


def _figure(setting: Setting, bars: pandas.DataFrame, longest: float) -> Figure:
    """A bar per policy, its name and mark at the left, its sum at the right; `longest`: in ms."""
    figure = drawing.new_figure(0.55 + 0.145 * max(3, len(bars)))
    axes = figure.subplots()
    left = pandas.Series(0.0, bars.index)
    for name, style in PARTS.items():
        axes.barh(range(len(bars)), bars[name], 0.72, left, **{"linewidth": 0} | style)
        left = left + bars[name]
    for at, (end, total, label) in enumerate(zip(left, bars["total"], bars["label"], strict=True)):
        text = f"{total:#.3g}".rstrip(".")
        axes.text(end + 0.012 * longest, at, text, va="center", fontsize=SMALL, color="0.25")
        own = drawing.line_style(setting.look[label]) | _MARK
        axes.plot(-0.02, at, **own, clip_on=False, transform=axes.get_yaxis_transform())
    size = 6.5 if len(bars) <= 10 else SMALL
    names = [drawing.side_label(label) for label in bars["label"]]
    axes.set_yticks(range(len(bars)), names, fontsize=size)
    axes.tick_params(axis="y", length=0, pad=7)
    axes.set(xlim=(0, longest * 1.13), ylim=(len(bars) - 0.45, -0.55))
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("time of a step (ms)")
    drawing.part_legend(figure, {name: PARTS[name] for name in PARTS if (bars[name] > 0).any()})
    return drawing.despine(figure, setting.remarks())
