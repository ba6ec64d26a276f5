"""Acceptance length, and speedup, against node budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from analysis.budgets import Swept, acceptance_points, swept_widths
from analysis.compare import Block
from analysis.curves import order_curves
from analysis.drawing import band, despine, legend, line_style, new_figure, plain, remark, unit_line
from analysis.figure.parts import Drawing, Missing, Setting
from analysis.intervals import Estimate
from analysis.look import Look, looks
from analysis.metrics import SPEEDUP
from analysis.plots import draw_acceptance
from analysis.scales import log2_ticks


def draw_acceptance_lengths(setting: Setting) -> Iterator[Drawing]:
    """The curves of the orders, with what swept runs measured under load."""
    curves, swept = order_curves(setting.comparison), acceptance_points(setting.comparison)
    if not curves.lines and not swept:
        raise Missing("no summary has acceptance_length_by_budget, and no policy's width was swept")
    notes = list(curves.notes)
    if swept:
        notes.append("Hollow markers: runs that sweep the policy's own width, under load.")
    figure = draw_acceptance(curves, setting.look, swept, setting.remarks)
    yield setting.drawing(curves.name, figure, curves.sentence, notes)


def draw_budgets(setting: Setting) -> Iterator[Drawing]:
    """Speedup over the baseline, and acceptance length, of policies whose width is swept."""
    drawn = False
    for suffix, block in setting.by_load():
        found = swept_widths(block)
        if found and any(one.has_speedup for one in found):
            drawn = True
            text = (
                f"Speedup over {block.baseline} (dotted line: 1) and acceptance length (tokens "
                f"per round) against the policy's node budget, at {block.load.title}."
            )
            keys = ", ".join(f"{one.name}: {one.key}" for one in found)
            notes = [f"Swept setting of {keys}."]
            if any(len(row.runs) > 1 for one in found for _, row in one.points):
                notes.append("Bands: 95 % Student-t intervals over seeds.")
            figure = _figure(block, found, setting.remarks)
            yield setting.drawing(f"speedup_vs_budget{suffix}", figure, text, notes)
    if not drawn:
        base = setting.comparison.baseline
        raise Missing(
            "no policy ran with two widths or more and beside it, at the same load and seed, "
            f"{base}: policy=fixed_tree policy.nodes=7,15,31,63"
        )


def _figure(block: Block, found: Sequence[Swept], remarks: Sequence[str]) -> Figure:
    look = looks(one.name for one in found)
    figure = new_figure(3.1)
    speedup, length = figure.subplots(2, 1, sharex=True)
    unit_line(speedup)
    for one in found:
        _line(speedup, look[one.name], one.estimates(SPEEDUP), one.name)
        _line(length, look[one.name], one.estimates("acceptance_length"), one.name)
    speedup.set_ylabel(plain(f"speedup over\n{block.baseline} (×)"))
    length.set_ylabel("acceptance length\n(tokens/round)")
    length.set_xlabel("node budget (N)")
    log2_ticks(length, sorted({nodes for one in found for nodes, _ in one.points}))
    legend(figure, look)
    remark(figure, remarks)
    return despine(figure)


def _line(axes, look: Look, points: Sequence[tuple[float, Estimate]], name: str) -> None:
    if not points:
        return
    x = [nodes for nodes, _ in points]
    axes.plot(x, [one.mean for _, one in points], label=name, **line_style(look))
    if any(one.half_width is not None for _, one in points):
        band(axes, x, [one.low for _, one in points], [one.high for _, one in points], look)
