"""Acceptance length, and speedup, against node budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.budgets import TOLERANCE, Swept, acceptance_points, tried_widths
from analysis.compare import Block
from analysis.curves import order_curves
from analysis.drawing import band, despine, draw_line, legend, new_figure, plain, remark, unit_line
from analysis.figure.parts import Drawing, Missing, Setting
from analysis.look import Look, looks
from analysis.metrics import SPEEDUP
from analysis.overlaps import covered, equal_words
from analysis.plots import draw_acceptance
from analysis.scales import log2_ticks, tick
from analysis.sweeps import HOLLOW, hollow_words, is_hollow


def draw_acceptance_lengths(setting: Setting) -> Iterator[Drawing]:
    """The curves of the orders, with what swept runs measured under load."""
    curves, swept = order_curves(setting.comparison), acceptance_points(setting.comparison)
    if not curves.lines and not swept:
        raise Missing("no summary has acceptance_length_by_budget, and no policy's width was swept")
    notes = list(curves.notes)
    if swept:
        notes.append(
            "Hollow markers: runs that sweep the policy's own width, under load, at that width or, "
            "where they did not verify as many, at the mean nodes verified."
        )
    # Replayed curves rest on no step time, so that a what-if does not weaken them.
    figure = draw_acceptance(curves, setting.look, swept, setting.remarks if swept else ())
    yield setting.drawing(curves.name, figure, curves.sentence, notes)


def draw_budgets(setting: Setting) -> Iterator[Drawing]:
    """Speedup over the baseline, and acceptance length, of policies whose width is swept."""
    drawn, lost = False, {}
    for suffix, block in setting.by_load():
        tried = tried_widths(block)
        found = [one for one in tried if len(one.points) > 1]
        lost |= dict.fromkeys(one.note for one in tried if len(one.points) < 2 and one.note)
        if found and any(one.has_speedup for one in found):
            drawn = True
            text = (
                f"Output throughput over that of {block.baseline} (speedup; dotted line: 1) and "
                f"acceptance length (tokens per round) against {_axis(found)}, at "
                f"{block.load.title}."
            )
            figure = _figure(block, found, setting.remarks)
            yield setting.drawing(f"speedup_vs_budget{suffix}", figure, text, _notes(tried))
    if not drawn:
        base = setting.comparison.baseline
        need = (
            "no policy ran with two widths or more and beside it, at the same load and seed, "
            f"{base}: policy=fixed_tree policy.nodes=7,15,31,63"
        )
        raise Missing(" ".join([*lost, need]))


def _notes(tried: Sequence[Swept]) -> list[str]:
    found = [one for one in tried if len(one.points) > 1]
    rows = [row for one in found for _, row in one.points]
    notes = [f"Swept setting of {', '.join(f'{one.name}: {one.key}' for one in found)}."]
    notes += [one.note for one in tried if one.note]
    if any(one.exact for one in found):
        notes.append(f"Budgets are within {TOLERANCE:.0%} of the mean nodes verified per request.")
    if any(len(row.runs) > 1 for row in rows):
        notes.append("Bands: 95 % Student-t intervals over seeds.")
    return notes + ([HOLLOW] if any(map(is_hollow, rows)) else [])


def _axis(found: Sequence[Swept]) -> str:
    """What the x axis is: the budget that was set, or what was verified of it."""
    if all(one.exact for one in found):
        return "the policy's node budget"
    exact = any(one.exact for one in found)
    return "nodes verified per request" + (" (or the budget that is as many)" if exact else "")


def _figure(block: Block, found: Sequence[Swept], remarks: Sequence[str]) -> Figure:
    look = looks(one.name for one in found)
    figure = new_figure(3.1)
    speedup, length = figure.subplots(2, 1, sharex=True)
    unit_line(speedup)
    every = [
        _panel(axes, found, look, key)
        for axes, key in ((speedup, SPEEDUP), (length, "acceptance_length"))
    ]
    speedup.set_ylabel(plain(f"speedup over\n{block.baseline} (×)"))
    length.set_ylabel("acceptance length\n(tokens/round)")
    exact = all(one.exact for one in found)
    length.set_xlabel("node budget (N)" if exact else "nodes verified per request (N)")
    log2_ticks(length, sorted({tick(nodes) for one in found for nodes, _ in one.points}))
    hollow = {one.name: [is_hollow(row) for _, row in one.points] for one in found}
    legend(figure, look, {name for name, own in hollow.items() if all(own)})
    said = hollow_words(any(own) for own in hollow.values())
    remark(figure, [*remarks, *said, *equal_words(every)])
    return despine(figure)


def _panel(axes: Axes, found: Sequence[Swept], look: Mapping[str, Look], key: str) -> dict:
    """Every policy's line of a metric, and its points by policy."""
    known = {one.name: points for one in found if (points := one.estimates(key))}
    lines = {name: [(x, value.mean) for x, value in points] for name, points in known.items()}
    rows = {one.name: dict(one.points) for one in found}
    below = covered(lines)
    for name, points in known.items():
        hollow = [is_hollow(rows[name][x]) for x, _ in points]
        draw_line(axes, name, look[name], lines[name], below[name], hollow)
        if any(value.half_width is not None for _, value in points):
            low, high = [value.low for _, value in points], [value.high for _, value in points]
            band(axes, [x for x, _ in points], low, high, look[name])
    return lines
