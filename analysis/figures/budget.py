"""Acceptance length, and speedup, against node budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas
from matplotlib.figure import Figure

from analysis.compare.budgets import (
    TOLERANCE,
    OrderCurve,
    Swept,
    order_curves,
    swept_lengths,
    tried_widths,
)
from analysis.compare.comparison import Comparison
from analysis.compare.metrics import SPEEDUP
from analysis.figures import drawing
from analysis.figures.parts import BANDS, HOLLOW, Drawing, Missing, Setting
from analysis.look import Look, look_of, looks


def draw_acceptance_lengths(setting: Setting) -> Iterator[Drawing]:
    """The curves of the orders, with what swept runs measured under load."""
    curves, swept = order_curves(setting.comparison), swept_lengths(setting.comparison)
    if not curves and not swept:
        raise Missing("no summary has acceptance_length_by_budget, and no policy's width was swept")
    text = (
        "Acceptance length (tokens per round, the bonus token included) when the first N nodes of "
        "a policy's order are verified in every round, replayed along the recording."
    )
    notes = []
    if any(len(one.labels) > 1 for one in curves):
        notes.append("Policies with one and the same curve share a line.")
    notes += [
        f"{one.name}: {', '.join(one.labels)}." for one in curves if one.name.endswith(" more")
    ]
    varying = ", ".join(one.name for one in curves if one.varies)
    if varying:
        notes.append(
            f"The order of {varying} follows the load: mean, and band from the lowest to the "
            "highest curve."
        )
    if swept:
        notes.append(
            "Hollow markers: runs that sweep the policy's own width, under load, at that width or, "
            "where they did not verify as many, at the mean nodes verified."
        )
    # Replayed curves rest on no step time, so that a what-if does not weaken them.
    remarks = setting.remarks() if swept else []
    figure = draw_acceptance(curves, setting.look, swept, remarks)
    yield setting.drawing("acceptance_length_vs_budget", figure, text, notes)


def draw_acceptance(
    curves: Sequence[OrderCurve],
    look: Mapping[str, Look],
    swept: Mapping[str, pandas.DataFrame],
    remarks: Sequence[str] = (),
) -> Figure:
    """Acceptance length against the number of verified nodes.

    Args:
        swept: by policy, points of runs that sweep it: hollow markers.
    """
    figure = drawing.new_figure(2.2)
    axes = figure.subplots()
    shown = {
        one.name: look_of(one.name) if one.name == one.names[0] else look[one.labels[0]]
        for one in curves
    }
    budgets: list[float] = []
    if curves:
        points = pandas.concat([one.points.assign(label=one.name) for one in curves])
        drawing.draw_lines(axes, points.reset_index(drop=True), shown)
        budgets += list(points["x"])
    for name, points in swept.items():
        hollow = {"linestyle": "none", "mfc": "none", "markersize": 5.5}
        axes.plot(
            points["x"], points["y"], label="_swept", **drawing.line_style(look_of(name)) | hollow
        )
        budgets += map(drawing.tick, points["x"])
        if all(name not in one.names for one in curves):
            shown[name] = look_of(name)
    drawing.log2_ticks(axes, budgets)
    axes.set_xlabel("verified nodes per request (N)")
    axes.set_ylabel("acceptance length\n(tokens/round)")
    drawing.legend(figure, shown)
    drawing.remark(figure, remarks)
    return drawing.despine(figure)


def draw_budgets(setting: Setting) -> Iterator[Drawing]:
    """Speedup over the baseline, and acceptance length, of policies whose width is swept."""
    comparison, drawn, lost = setting.comparison, False, {}
    base, speedup = comparison.baseline, comparison.estimates(SPEEDUP)
    for suffix, load, rows in setting.by_load():
        tried = tried_widths(comparison, rows)
        found = [one for one in tried if len(one.nodes) > 1]
        lost |= dict.fromkeys(one.note for one in tried if len(one.nodes) < 2 and one.note)
        if any(speedup.loc[one.nodes.index, "mean"].notna().any() for one in found):
            drawn = True
            text = (
                f"Output throughput over that of {base} (speedup; dotted line: 1) and acceptance "
                f"length (tokens per round) against {_axis(found)}, at {load.title}."
            )
            figure, notes = _figure(setting, found), _notes(comparison, tried)
            yield setting.drawing(f"speedup_vs_budget{suffix}", figure, text, notes)
    if not drawn:
        need = (
            "no policy ran with two widths or more and beside it, at the same load and seed, "
            f"{base}: policy=fixed_tree policy.nodes=7,15,31,63"
        )
        raise Missing(" ".join([*lost, need]))


def _notes(comparison: Comparison, tried: Sequence[Swept]) -> list[str]:
    found = [one for one in tried if len(one.nodes) > 1]
    rows = comparison.rows.loc[[row for one in found for row in one.nodes.index]]
    notes = [f"Swept setting of {', '.join(f'{one.name}: {one.key}' for one in found)}."]
    notes += [one.note for one in tried if one.note]
    if any(one.exact for one in found):
        notes.append(f"Budgets are within {TOLERANCE:.0%} of the mean nodes verified per request.")
    notes += [BANDS] if (rows["count"] > 1).any() else []
    return notes + ([HOLLOW] if rows["hollow"].any() else [])


def _axis(found: Sequence[Swept]) -> str:
    """What the x axis is: the budget that was set, or what was verified of it."""
    if all(one.exact for one in found):
        return "the policy's node budget"
    exact = any(one.exact for one in found)
    return "nodes verified per request" + (" (or the budget that is as many)" if exact else "")


def _figure(setting: Setting, found: Sequence[Swept]) -> Figure:
    comparison, look = setting.comparison, looks(one.name for one in found)
    places = pandas.concat([one.nodes.to_frame("x").assign(label=one.name) for one in found])
    places = places.join(comparison.rows[["hollow"]])
    figure = drawing.new_figure(3.1)
    speedup, length = figure.subplots(2, 1, sharex=True)
    drawing.unit_line(speedup)
    panels = []
    for axes, key in ((speedup, SPEEDUP), (length, "acceptance_length")):
        points = places.join(comparison.estimates(key)).dropna(subset="mean")
        panels.append(points.rename(columns={"mean": "y"}))
        drawing.draw_lines(axes, panels[-1], look)
    speedup.set_ylabel(drawing.plain(f"speedup over\n{comparison.baseline} (×)"))
    length.set_ylabel("acceptance length\n(tokens/round)")
    exact = all(one.exact for one in found)
    length.set_xlabel("node budget (N)" if exact else "nodes verified per request (N)")
    drawing.log2_ticks(length, places["x"].map(drawing.tick))
    return drawing.finish(figure, panels, look, setting.remarks(places["hollow"]))
