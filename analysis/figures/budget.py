"""Draft nodes: acceptance length and speedup against their budget, and how many a step verifies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
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
from analysis.figures.draw import BANDS, HOLLOW, Drawing, Missing, Setting
from analysis.look import look_of, looks
from analysis.read.tables import STEPS, read_steps

FEW = 20  # steps; a mean over fewer is not drawn
_MOST_SIZES = 12  # distinct batch sizes, from which on neighbours are put together
_PER_OCTAVE = 2
_LENGTH = "acceptance length\n(tokens/round)"


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
    yield setting.drawing(
        "acceptance_length_vs_budget", _draw_lengths(setting, curves, swept), text, notes
    )


def _draw_lengths(
    setting: Setting, curves: Sequence[OrderCurve], swept: Mapping[str, pandas.DataFrame]
) -> Figure:
    figure = drawing.new_figure(2.2)
    axes = figure.subplots()
    shown = {
        one.name: look_of(one.name) if one.name == one.names[0] else setting.look[one.labels[0]]
        for one in curves
    }
    budgets: list[float] = []
    if curves:
        points = pandas.concat([one.points.assign(label=one.name) for one in curves])
        drawing.draw_lines(axes, points.reset_index(drop=True), shown)
        budgets += list(points["x"])
    for name, points in swept.items():
        hollow = {"linestyle": "none", "mfc": "none", "markersize": 5.5}
        style = drawing.line_style(look_of(name)) | hollow
        axes.plot(points["x"], points["y"], label="_swept", **style)
        budgets += map(drawing.tick, points["x"])
        if all(name not in one.names for one in curves):
            shown[name] = look_of(name)
    drawing.log2_ticks(axes, budgets)
    axes.set_xlabel("verified nodes per request (N)")
    axes.set_ylabel(_LENGTH)
    drawing.legend(figure, shown)
    # Replayed curves rest on no step time, so that a what-if does not weaken them.
    return drawing.despine(figure, setting.remarks() if swept else [])


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
            # What the x axis is: the budget that was set, or what was verified of it.
            axis = "nodes verified per request"
            if all(one.exact for one in found):
                axis = "the policy's node budget"
            elif any(one.exact for one in found):
                axis += " (or the budget that is as many)"
            text = (
                f"Output throughput over that of {base} (speedup; dotted line: 1) and acceptance "
                f"length (tokens per round) against {axis}, at {load.title}."
            )
            figure, notes = _draw_sweeps(setting, found), _notes(comparison, tried)
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


def _draw_sweeps(setting: Setting, found: Sequence[Swept]) -> Figure:
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
    length.set_ylabel(_LENGTH)
    exact = all(one.exact for one in found)
    length.set_xlabel("node budget (N)" if exact else "nodes verified per request (N)")
    drawing.log2_ticks(length, places["x"].map(drawing.tick))
    return drawing.finish(figure, panels, look, setting.remarks(places["hollow"]))


# ---------------------------------------------------------------- nodes of a step by batch size


def draw_nodes(setting: Setting) -> Iterator[Drawing]:
    """One figure per setting, over all its loads."""
    sums = step_sums(setting.comparison)
    if sums.empty:
        raise Missing(f"no run has a {STEPS} with batch and draft_nodes beside its summary")
    lines = node_lines(sums)
    if lines.empty:
        raise Missing(f"no policy verifies draft nodes in {FEW} steps of one batch size")
    text = (
        "Mean draft nodes per request of a step against the number of requests in it, over all "
        "steps of all loads and seeds; steps without a draft count as 0 nodes."
    )
    notes = [f"Sizes with fewer than {FEW} steps of a policy are left out."]
    if _many_sizes(sums):
        notes.append(f"Batch sizes are put together, {_PER_OCTAVE} groups to a doubling.")
    never = [label for label in dict.fromkeys(sums["label"]) if label not in set(lines["label"])]
    if never:
        notes.append(f"Not drawn, since never a node: {', '.join(never)}.")
    figure = drawing.new_figure(2.3)
    axes = figure.subplots()
    drawing.draw_lines(axes, lines, setting.look, clip_on=False)
    drawing.count_axis(axes, lines["y"])
    low, high = lines["x"].min(), lines["x"].max()
    powers = range(int(np.floor(np.log2(low))), int(np.ceil(np.log2(high))) + 1)
    drawing.log2_ticks(axes, [2.0**power for power in powers])
    axes.set_xlim(low / 1.15, high * 1.15)
    axes.set_xlabel("batch size (requests in the step)")
    axes.set_ylabel("draft nodes\nper request")
    drawing.finish(figure, [lines], setting.look, setting.remarks())
    yield setting.drawing("nodes_vs_batch", figure, text, notes)


def step_sums(comparison: Comparison) -> pandas.DataFrame:
    """By policy ``label`` and ``batch`` size: ``steps``, ``requests`` and draft ``nodes``."""
    found = []
    for label in comparison.labels:
        for path in comparison.runs.loc[comparison.runs["label"] == label, "path"]:
            steps = read_steps(path, "batch", "draft_nodes")
            if steps is not None:
                found.append(steps.assign(label=label))
    if not found:
        return pandas.DataFrame()
    groups = pandas.concat(found).groupby(["label", "batch"], sort=False)["draft_nodes"]
    sums = groups.agg(steps="count", nodes="sum").reset_index()
    return sums.assign(requests=sums["steps"] * sums["batch"])


def _many_sizes(sums: pandas.DataFrame) -> bool:
    return bool((sums.groupby("label")["batch"].nunique() > _MOST_SIZES).any())


def node_lines(sums: pandas.DataFrame) -> pandas.DataFrame:
    """``x`` (batch size), ``y`` (nodes per request) by ``label`` that ever verifies one.

    Groups of neighbouring sizes are merged where there are many.
    """
    size = sums["batch"]
    key = (_PER_OCTAVE * np.log2(size)).round() if _many_sizes(sums) else size
    merged = sums.assign(key=key).groupby(["label", "key"])[["steps", "requests", "nodes"]].sum()
    merged = merged[merged["steps"] >= FEW].reset_index()
    merged["x"] = merged["requests"] / merged["steps"]
    merged["y"] = merged["nodes"] / merged["requests"]
    drafts = merged["y"].groupby(merged["label"]).transform("max") > 0
    order = {label: at for at, label in enumerate(dict.fromkeys(sums["label"]))}
    lines = merged.loc[drafts, ["label", "x", "y"]]
    return lines.sort_values("label", key=lambda labels: labels.map(order), kind="stable")
