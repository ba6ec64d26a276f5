"""Speedup by domain: grouped bars, or small panels where policies are many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.compare import Block, Row
from analysis.drawing import bar_legend, despine, new_figure, plain, remark, side_label, unit_line
from analysis.figure.parts import Drawing, Missing, Setting
from analysis.intervals import Estimate
from analysis.look import RC, SMALL, Look
from analysis.summaries import Summary

EVERY = "all"
_MOST_BARS = 44  # side by side in one column of a paper
_PANELS = 5  # in a row
_ERROR = {"elinewidth": 0.6, "capsize": 1.2, "capthick": 0.6, "ecolor": "0.2"}

Bars = dict[str, dict[str, Estimate]]  # by domain, then by policy label


def draw_domains(setting: Setting) -> Iterator[Drawing]:
    """One figure per load."""
    drawn = False
    for suffix, block in setting.by_load():
        bars = speedups(block)
        if bars:
            drawn = True
            figure = draw_bars(bars, setting.look, block.baseline, setting.remarks)
            name = f"speedup_by_domain{suffix}"
            yield setting.drawing(name, figure, _sentence(block), _notes(block))
    if not drawn:
        raise Missing(
            f"no run has by_domain times beside those of {setting.comparison.baseline} at the "
            "same load and seed"
        )


def _sentence(block: Block) -> str:
    return (
        f"Speedup over {block.baseline} by domain at {block.load.title}: mean time per output "
        f"token (TPOT) of the domain's requests under {block.baseline}, over that under the policy "
        "(dotted line: 1)."
    )


def _notes(block: Block) -> list[str]:
    notes = [f"Requests of all domains are served together; {EVERY}: every request."]
    if any(len(row.paired) > 1 for row in block.rows):
        notes.append("Bars: mean of the ratios paired by seed, with 95 % Student-t intervals.")
    return notes


def speedups(block: Block) -> Bars:
    """Ratios of mean TPOT, the baseline's over the policy's, paired by seed; all requests last."""
    names: dict[str, None] = {}
    for row in block.rows:
        for run in row.runs:
            found = run.data.get("by_domain") or {}
            recorded = [one for one in run.data["trace"].get("domains") or () if one in found]
            names |= dict.fromkeys((*recorded, *found))
    rows = [row for row in block.rows if row.label != block.baseline]
    found: Bars = {}
    for name in (*names, EVERY) if len(names) > 1 else names:
        values = {row.label: _ratio(row, None if name == EVERY else name) for row in rows}
        kept = {label: one for label, one in values.items() if one is not None}
        if kept:
            found[name] = kept
    return found if set(found) - {EVERY} else {}


def _ratio(row: Row, domain: str | None) -> Estimate | None:
    def of(ours: Summary, theirs: Summary) -> float | None:
        mine, base = _tpot(ours, domain), _tpot(theirs, domain)
        return base / mine if mine and base else None

    return row.ratio(of)


def _tpot(run: Summary, domain: str | None) -> float | None:
    node = run.data if domain is None else (run.data.get("by_domain") or {}).get(domain) or {}
    value = node.get("mean_tpot_ms")
    return float(value) if isinstance(value, int | float) and value > 0 else None


def draw_bars(
    bars: Bars, look: Mapping[str, Look], baseline: str, remarks: Sequence[str]
) -> Figure:
    """Side by side while they have room and colours of their own, else a panel per domain."""
    labels = list(dict.fromkeys(label for one in bars.values() for label in one))
    told_apart = len({look[label].colour for label in labels}) == len(labels)
    if told_apart and len(labels) * len(bars) <= _MOST_BARS:
        figure = _grouped(bars, labels, look, baseline)
    else:
        figure = _panels(bars, labels, look, baseline)
    remark(figure, remarks)
    return despine(figure)


def _grouped(bars: Bars, labels: Sequence[str], look: Mapping[str, Look], baseline: str) -> Figure:
    figure = new_figure(1.75)
    axes = figure.subplots()
    width = 0.82 / len(labels)
    for at, label in enumerate(labels):
        shift = (at - (len(labels) - 1) / 2) * width
        for group, values in enumerate(bars.values()):
            if label in values:
                one = values[label]
                error = {"yerr": one.half_width, "error_kw": _ERROR} if one.half_width else {}
                axes.bar(group + shift, one.mean, width, **_style(look[label]), **error)
    unit_line(axes)
    axes.set_xticks(range(len(bars)), [plain(name) for name in bars])
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(plain(f"speedup (mean TPOT)\nover {baseline} (×)"))
    bar_legend(figure, {label: look[label] for label in labels})
    return figure


def _panels(bars: Bars, labels: Sequence[str], look: Mapping[str, Look], baseline: str) -> Figure:
    """Policies down the side, named once; the same scale in all."""
    rows = -(-len(bars) // _PANELS)
    columns = min(_PANELS, len(bars))
    figure = new_figure(0.4 + rows * (0.3 + 0.115 * len(labels)))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, (domain, values) in zip(grid.ravel(), bars.items(), strict=False):
        _panel(axes, values, labels, look)
        axes.set_title(plain(domain), fontsize=SMALL, pad=2)
    for axes in grid.ravel()[len(bars) :]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_yticks(range(len(labels)), [side_label(one) for one in labels], fontsize=SMALL)
    grid[0, 0].set_ylim(len(labels) - 0.4, -0.6)
    longest = max(one.mean for values in bars.values() for one in values.values())
    grid[0, 0].set_xlim(0, max(1.0, longest) * 1.15)  # wide intervals of few seeds are cut off
    grid[0, 0].xaxis.set_major_locator(MaxNLocator(3, integer=longest > 2, prune="upper"))
    title = plain(f"speedup (mean TPOT) over {baseline} (×)")
    figure.suptitle(title, fontsize=RC["axes.labelsize"])
    return figure


def _panel(axes: Axes, values: dict[str, Estimate], labels, look: Mapping[str, Look]) -> None:
    for at, label in enumerate(labels):
        if label in values:
            one = values[label]
            error = {"xerr": one.half_width, "error_kw": _ERROR} if one.half_width else {}
            axes.barh(at, one.mean, 0.75, **_style(look[label]), **error)
    unit_line(axes, horizontal=False)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=SMALL)


def _style(look: Look) -> dict:
    return {"color": look.colour, "edgecolor": look.edge, "linewidth": 0.3}
