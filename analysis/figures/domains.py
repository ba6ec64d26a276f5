"""Speedup by domain: grouped bars, or small panels where policies are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.compare.comparison import Comparison
from analysis.figures import drawing
from analysis.figures.draw import Drawing, Missing, Setting
from analysis.look import RC, SMALL, Look
from analysis.read.runs import domains, numbers

EVERY = "all"
_MOST_BARS = 44  # side by side in one column of a paper
_PANELS = 5  # in a row
_HATCHES = {
    "s": "///",
    "^": "\\\\\\",
    "D": "---",
    "v": "xxx",
    "P": "+++",
    "X": "|||",
    "h": "\\\\",
    "d": "//",
}
_ERROR = {"elinewidth": 0.6, "capsize": 1.2, "capthick": 0.6, "ecolor": "0.2"}


def draw_domains(setting: Setting) -> Iterator[Drawing]:
    """One figure per load, but none where all that is known is of all domains."""
    comparison, base, drawn = setting.comparison, setting.comparison.baseline, False
    every = speedups(comparison)
    for suffix, load, rows in setting.by_load():
        runs = comparison.runs[comparison.runs["row"].isin(rows.index)]
        bars = every[every["row"].isin(rows.index)]
        if len({name for data in runs["data"] for name in data.get("by_domain") or {}}) < 2:
            bars = bars[bars["domain"] != EVERY]
        if (bars["domain"] != EVERY).any():
            drawn = True
            text = (
                f"Speedup over {base} by domain at {load.title}: mean time per output token (TPOT) "
                f"of the domain's requests under {base}, over that under the policy (dotted line: "
                "1)."
            )
            notes = [f"Requests of all domains are served together; {EVERY}: every request."]
            if (rows["paired"] > 1).any():
                notes.append(
                    "Bars: mean of the ratios paired by seed, with 95 % Student-t intervals."
                )
            yield setting.drawing(f"speedup_by_domain{suffix}", _draw(setting, bars), text, notes)
    if not drawn:
        raise Missing(
            f"no run has by_domain times beside those of {base} at the same load and seed"
        )


def speedups(comparison: Comparison) -> pandas.DataFrame:
    """Ratios of mean TPOT, the baseline's over the policy's, paired by seed: an estimate a bar.

    Columns ``row`` (of the comparison), ``label``, ``domain`` and those of an estimate; `EVERY` is
    of all requests. Bars without a value are left out.
    """
    tpot = domains(comparison.runs, "mean_tpot_ms")
    own = numbers(comparison.runs, "mean_tpot_ms")
    tpot[EVERY] = own.where(own > 0)
    found = [
        comparison.estimates(comparison.of_baseline(tpot[name]) / tpot[name]).assign(domain=name)
        for name in tpot
    ]
    bars = pandas.concat(found).rename_axis("row").reset_index()
    bars["label"] = bars["row"].map(comparison.rows["label"])
    return bars[bars["mean"].notna() & (bars["label"] != comparison.baseline)]


def _draw(setting: Setting, bars: pandas.DataFrame) -> Figure:
    """Side by side while they have room and colours of their own, else a panel per domain."""
    labels = list(dict.fromkeys(bars.sort_values("row", kind="stable")["label"]))
    names, look = list(dict.fromkeys(bars["domain"])), setting.look
    told_apart = len({look[label].colour for label in labels}) == len(labels)
    grouped = told_apart and len(labels) * len(names) <= _MOST_BARS
    figure = (_grouped if grouped else _panels)(setting, bars, names, labels)
    return drawing.despine(figure, setting.remarks())


def _grouped(
    setting: Setting, bars: pandas.DataFrame, names: Sequence[str], labels: Sequence[str]
) -> Figure:
    figure = drawing.new_figure(1.75)
    axes = figure.subplots()
    width, styles = 0.82 / len(labels), {label: _style(setting.look[label]) for label in labels}
    for at, label in enumerate(labels):
        own = bars[bars["label"] == label]
        x = own["domain"].map(names.index) + (at - (len(labels) - 1) / 2) * width
        error = {"yerr": own["half"], "error_kw": _ERROR} if own["half"].any() else {}
        axes.bar(x, own["mean"], width, **styles[label], **error)
    drawing.unit_line(axes)
    axes.set_xticks(range(len(names)), [drawing.plain(name) for name in names])
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x", visible=False)
    base = drawing.plain(setting.comparison.baseline)
    axes.set_ylabel(f"speedup (mean TPOT)\nover {base} (×)")
    drawing.part_legend(figure, styles, most=3)
    return figure


def _panels(
    setting: Setting, bars: pandas.DataFrame, names: Sequence[str], labels: Sequence[str]
) -> Figure:
    """Policies down the side, named once; the same scale in all."""
    rows, columns = -(-len(names) // _PANELS), min(_PANELS, len(names))
    figure = drawing.new_figure(0.4 + rows * (0.3 + 0.115 * len(labels)))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.ravel()[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(grid.ravel(), names, strict=False):
        for bar in bars[bars["domain"] == name].itertuples():
            error = {"xerr": bar.half, "error_kw": _ERROR} if bar.half > 0 else {}
            place = labels.index(bar.label)
            axes.barh(place, bar.mean, 0.75, **_style(setting.look[bar.label]), **error)
        drawing.unit_line(axes, horizontal=False)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=SMALL)
        axes.set_title(drawing.plain(name), fontsize=SMALL, pad=2)
    said = [drawing.side_label(label) for label in labels]
    for axes in grid[:, 0]:
        axes.set_yticks(range(len(labels)), said, fontsize=SMALL)
    first, longest = grid[0, 0], bars["mean"].max()
    first.set_ylim(len(labels) - 0.4, -0.6)
    first.set_xlim(0, max(1.0, longest) * 1.15)  # wide intervals of few seeds are cut off
    first.xaxis.set_major_locator(MaxNLocator(3, integer=longest > 2, prune="upper"))
    title = f"speedup (mean TPOT) over {drawing.plain(setting.comparison.baseline)} (×)"
    figure.suptitle(title, fontsize=RC["axes.labelsize"])
    return figure


def _style(look: Look) -> dict:
    """Hatches tell bars apart in print without colours; they follow from the policy's marker."""
    hatch = _HATCHES.get(look.marker, "")
    return {"facecolor": look.colour, "edgecolor": "white" if hatch else look.edge,
            "linewidth": 0.3, "hatch": hatch}  # fmt: skip
