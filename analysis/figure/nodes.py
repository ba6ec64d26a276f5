"""Draft nodes per request against batch size: the tree that shrinks to a chain, and to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from analysis.compare import Comparison
from analysis.drawing import MANY, THIN, despine, draw_line, legend, new_figure, remark
from analysis.figure.parts import Drawing, Missing, Setting
from analysis.look import Look
from analysis.overlaps import covered, equal_words
from analysis.scales import count_axis, log2_ticks
from analysis.steps import FILE_NAME, read_steps
from analysis.summaries import Summary

FEW = 20  # steps; a mean over fewer is not drawn
_MOST_SIZES = 12  # distinct batch sizes, from which on neighbours are put together
_PER_OCTAVE = 2

Lines = dict[str, list[tuple[float, float]]]  # by policy label: (batch size, nodes per request)


def draw_nodes(setting: Setting) -> Iterator[Drawing]:
    """One figure per setting, over all its loads."""
    sums = step_sums(setting.comparison)
    if not sums:
        raise Missing(f"no run has a {FILE_NAME} with batch and draft_nodes beside its summary")
    lines = node_lines(sums)
    if not lines:
        raise Missing(f"no policy verifies draft nodes in {FEW} steps of one batch size")
    text = (
        "Mean draft nodes per request of a step against the number of requests in it, over all "
        "steps of all loads and seeds; steps without a draft count as 0 nodes."
    )
    merged = any(len(per) > _MOST_SIZES for per in sums.values())
    notes = [f"Sizes with fewer than {FEW} steps of a policy are left out."]
    if merged:
        notes.append(f"Batch sizes are put together, {_PER_OCTAVE} groups to a doubling.")
    never = [label for label in sums if label not in lines]
    if never:
        notes.append(f"Not drawn, since never a node: {', '.join(never)}.")
    yield setting.drawing(
        "nodes_vs_batch", _figure(lines, setting.look, setting.remarks), text, notes
    )


def step_sums(comparison: Comparison) -> dict[str, dict[int, np.ndarray]]:
    """By policy label and batch size: (steps, requests, draft nodes)."""
    found: dict[str, dict[int, np.ndarray]] = {}
    for block in comparison.blocks:
        for row in block.rows:
            for run in row.runs:
                _add(found, row.label, run)
    return {label: found[label] for label in comparison.labels if label in found}


def _add(found: dict, label: str, run: Summary) -> None:
    steps = read_steps(run, "batch", "draft_nodes")
    if steps is None:
        return
    own = found.setdefault(label, {})
    batch, nodes = steps["batch"], steps["draft_nodes"]
    for size in np.unique(batch).tolist():
        this = batch == size
        count = int(np.count_nonzero(this))
        add = np.array([count, count * size, int(nodes[this].sum())], float)
        own[size] = own.get(size, 0) + add


def node_lines(sums: Mapping[str, Mapping[int, np.ndarray]]) -> Lines:
    """(batch size, nodes per request) by policy that ever verifies one; groups of sizes merged."""
    merge = any(len(per) > _MOST_SIZES for per in sums.values())
    found = {}
    for label, per in sums.items():
        groups: dict[int, np.ndarray] = {}
        for size, one in per.items():
            key = round(_PER_OCTAVE * np.log2(size)) if merge else size
            groups[key] = groups.get(key, 0) + one
        points = [
            (requests / steps, nodes / requests)
            for _, (steps, requests, nodes) in sorted(groups.items())
            if steps >= FEW
        ]
        if any(nodes > 0 for _, nodes in points):
            found[label] = points
    return found


def _figure(lines: Lines, look: Mapping[str, Look], remarks: Sequence[str]) -> Figure:
    figure = new_figure(2.3)
    axes = figure.subplots()
    below, thin = covered(lines), THIN if len(lines) > MANY else {}
    for label, points in lines.items():
        draw_line(axes, label, look[label], points, below[label], clip_on=False, **thin)
    count_axis(axes, [y for points in lines.values() for _, y in points])
    _batches(axes, [x for points in lines.values() for x, _ in points])
    axes.set_xlabel("batch size (requests in the step)")
    axes.set_ylabel("draft nodes\nper request")
    legend(figure, {label: look[label] for label in lines})
    remark(figure, [*remarks, *equal_words([lines])])
    return despine(figure)


def _batches(axes, sizes: Sequence[float]) -> None:
    """Powers of two that cover the batch sizes seen."""
    low, high = int(np.floor(np.log2(min(sizes)))), int(np.ceil(np.log2(max(sizes))))
    log2_ticks(axes, [2.0**power for power in range(low, high + 1)])
    axes.set_xlim(min(sizes) / 1.15, max(sizes) * 1.15)
