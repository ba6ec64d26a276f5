"""Draft nodes per request against batch size: the tree that shrinks to a chain, and to nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas
from matplotlib.figure import Figure

from analysis.compare.comparison import Comparison
from analysis.figures import drawing
from analysis.figures.parts import Drawing, Missing, Setting
from analysis.read.tables import STEPS, read_steps

FEW = 20  # steps; a mean over fewer is not drawn
_MOST_SIZES = 12  # distinct batch sizes, from which on neighbours are put together
_PER_OCTAVE = 2


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
    yield setting.drawing("nodes_vs_batch", _figure(setting, lines), text, notes)


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


def _figure(setting: Setting, lines: pandas.DataFrame) -> Figure:
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
    return drawing.finish(figure, [lines], setting.look, setting.remarks())
