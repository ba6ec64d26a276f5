"""Sorted prefix mass: published curves, and those of recordings that are named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from analysis.drawing import despine, legend, line_style, new_figure
from analysis.figure.parts import Drawing
from analysis.inputs import Inputs
from analysis.look import DASHED, Look, plain_looks
from analysis.prefix_mass import BRANCH, MassCurve, published_curves, recorded_curve
from analysis.scales import log2_ticks, log_axis

_RECORDED = (Look("0.1", "o"), Look("0.45", "s"), Look("0.25", "^", DASHED))


def draw_masses(inputs: Inputs) -> Iterator[Drawing]:
    """One figure."""
    published = published_curves()
    recorded = [recorded_curve(path) for path in inputs.recordings]
    notes = [f"CAST: {published[0].source}."]
    for one in recorded:
        notes.append(
            f"{one.name}: best-first tree of the drafter's own law, {BRANCH} children at most; "
            f"{one.source}."
        )
    yield Drawing(
        "sorted_prefix_mass",
        _figure(published, recorded),
        "Mean prefix mass (product of the drafter's probabilities along a path) of the N-th most "
        "probable node of a draft tree, against N.",
        tuple(notes),
        (),
    )


def _figure(published: Sequence[MassCurve], recorded: Sequence[MassCurve]) -> Figure:
    figure = new_figure(2.1)
    axes = figure.subplots()
    shown: dict[str, Look] = dict(
        zip((one.name for one in published), plain_looks(len(published)), strict=True)
    )
    for at, one in enumerate(recorded):
        shown[one.name] = _RECORDED[at % len(_RECORDED)]
    curves = [*published, *recorded]
    most = max(len(one.mass) for one in curves)
    for one in curves:
        ranks, mass = zip(*((n, m) for n, m in enumerate(one.mass, 1) if m > 0), strict=True)
        every = [at for at, n in enumerate(ranks) if n & (n - 1) == 0]  # a mark at powers of two
        axes.plot(ranks, mass, label=one.name, markevery=every, **line_style(shown[one.name]))
    log_axis(axes, "y", [m for one in curves for m in one.mass if m > 0])
    log2_ticks(axes, [2**power for power in range(most.bit_length()) if 2**power <= most])
    axes.set_xlabel("node, by falling mass (N)")
    axes.set_ylabel("mean prefix mass")
    legend(figure, shown)
    return despine(figure)
