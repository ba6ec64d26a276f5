"""Sorted prefix mass: how probable the N-th best node of a drafter's tree is, in the mean.

A node's prefix mass is the product of the drafter's probabilities along its path. Published
curves come with the package; those of a recording follow from its scores.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pandas

import traces
from analysis.figures import drawing
from analysis.figures.draw import Drawing, Inputs
from analysis.look import DASHED, Look, plain_looks
from traces.common.errors import InputError

NODES, ANCHORS, BRANCH = 128, 200, 32
PUBLISHED = Path(traces.__file__).parent / "published" / "cast_mass_curves"
_RECORDED = (Look("0.1", "o"), Look("0.45", "s"), Look("0.25", "^", DASHED))


@dataclass(frozen=True, slots=True)
class MassCurve:
    """Mean mass of the N-th largest node, by N from 1."""

    name: str
    mass: pandas.Series = field(repr=False)
    source: str


def draw_masses(inputs: Inputs) -> Iterator[Drawing]:
    """One figure: published curves, and those of recordings that are named."""
    published = published_curves()
    recorded = [recorded_curve(path) for path in inputs.recordings]
    notes = [f"CAST: {published[0].source}."]
    notes += [
        f"{one.name}: best-first tree of the drafter's own law, {BRANCH} children at most; "
        f"{one.source}."
        for one in recorded
    ]
    greys = [_RECORDED[at % len(_RECORDED)] for at in range(len(recorded))]
    looks = [*plain_looks(len(published), dashed=True), *greys]
    figure, curves = drawing.new_figure(2.1), [*published, *recorded]
    axes = figure.subplots()
    shown = [one.mass[one.mass > 0] for one in curves]
    for one, mass, look in zip(curves, shown, looks, strict=True):
        every = [at for at, n in enumerate(mass.index) if n & (n - 1) == 0]  # at powers of two
        axes.plot(mass.index, mass, label=one.name, markevery=every, **drawing.line_style(look))
    drawing.log_axis(axes, "y", pandas.concat(shown))
    most = max(len(one.mass) for one in curves)
    drawing.log2_ticks(axes, drawing.powers_of_2(1, most / 1.01))
    axes.set(xlabel="node, by falling mass (N)", ylabel="mean prefix mass")
    drawing.legend(figure, {one.name: look for one, look in zip(curves, looks, strict=True)})
    sentence = (
        "Mean prefix mass (product of the drafter's probabilities along a path) of the N-th most "
        "probable node of a draft tree, against N."
    )
    yield Drawing("sorted_prefix_mass", drawing.despine(figure), sentence, notes)


def published_curves() -> list[MassCurve]:
    """The curves transcribed from CAST, one per domain, in the file's order."""
    import yaml

    header = yaml.safe_load(PUBLISHED.with_suffix(".yaml").read_text(encoding="utf-8"))
    source = f"{header['target']}, temperature {header['temperature']:g}; "
    source += " ".join(header["source"].split()).rstrip(".")
    table = pandas.read_csv(PUBLISHED.with_suffix(".csv"), index_col="node_rank")
    return [
        MassCurve(f"{domain} (CAST)", own["mean_prefix_mass"].sort_index(), source)
        for domain, own in table.groupby("domain", sort=False)
    ]


def recorded_curve(path: Path) -> MassCurve:
    """Of a recording: the mean over anchors spread evenly over it.

    The tree is the best-first one of the drafter's law given the parent token where the recording
    holds it, and of the scores by depth otherwise; of a node's children only the `BRANCH` best.

    Raises:
        InputError: not a recording, or one without anchors.
    """
    from traces.recordings.files import read_recording

    recording = read_recording(path)
    if not recording.num_anchors:
        raise InputError(f"{path}: no anchors, expected a recording with outputs")
    count = min(ANCHORS, recording.num_anchors)
    anchors = np.unique(np.linspace(0, recording.num_anchors - 1, count).astype(int)).tolist()
    total = np.zeros(NODES)
    for anchor in anchors:
        found = list(sorted_masses(recording, anchor))
        total[: len(found)] += found
    name = path.stem.partition("-00")[0]
    source = f"{path.name} ({recording.content_hash[:12]}), {len(anchors)} of its anchors"
    mass = pandas.Series(total / len(anchors), range(1, NODES + 1))
    return MassCurve(name, mass, f"{source}, temperature {recording.temperature:g}")


def sorted_masses(recording: Any, anchor: int) -> Iterator[float]:
    """Masses of the `NODES` most probable nodes below an anchor, falling."""

    @cache
    def children(depth: int, parent: int) -> tuple[Any, Any]:
        tokens, logq = recording.conditional(anchor, depth, [parent], BRANCH)
        return tokens[0], logq[0]

    heap: list[tuple[float, int, int, int, float]] = []  # -log mass, depth, parent, rank, log above

    def push(depth: int, parent: int, rank: int, above: float) -> None:
        tokens, logq = children(depth, parent)
        if rank < len(tokens) and logq[rank] > -float("inf"):
            heapq.heappush(heap, (-(above + float(logq[rank])), depth, parent, rank, above))

    push(0, int(recording.anchor_tokens([anchor])[0]), 0, 0.0)
    for _ in range(NODES):
        if not heap:
            return
        cost, depth, parent, rank, above = heapq.heappop(heap)
        yield exp(-cost)
        push(depth, parent, rank + 1, above)  # the next sibling
        if depth + 1 < recording.depths:
            push(depth + 1, int(children(depth, parent)[0][rank]), 0, -cost)
