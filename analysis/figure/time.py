"""Where a round's time goes: draft, verify (and the padding in it), host, prefill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.figure import Figure

from analysis.compare import Block, Row
from analysis.drawing import despine, new_figure, part_legend, remark, side_label
from analysis.figure.parts import Drawing, Missing, Setting
from analysis.look import SMALL, Look
from analysis.steps import FILE_NAME, spent_in_window, steps_in_window
from analysis.summaries import Summary

_READABLE = 4  # times the shortest of the loads' longest bars, up to which they share a scale
# No colour of a policy: the violets of predicted rounds, and grey for what is not decoding.
PARTS = {
    "draft": {"facecolor": "#DAD2EC"},
    "verify": {"facecolor": "#9A86C8"},
    "padding": {"facecolor": "#9A86C8", "hatch": "//////", "edgecolor": "white", "linewidth": 0},
    "host": {"facecolor": "#43317A"},
    "prefill": {"facecolor": "0.7"},
}


def draw_times(setting: Setting) -> Iterator[Drawing]:
    """One figure per load, on one scale where all of them can be read on it."""
    every = []
    for suffix, block in setting.by_load():
        found = {row.label: parts for row in block.rows if (parts := round_parts(row))}
        if found:
            every.append((suffix, block, found))
    if not every:
        raise Missing(f"no summary has step_ms, and {FILE_NAME} where prompts are read whole")
    longest = [_longest(found) for _, _, found in every]
    shared = max(longest) <= _READABLE * min(longest)
    for own, (suffix, block, found) in zip(longest, every, strict=True):
        notes = _notes(block, found)
        if len(every) > 1:
            notes.append(f"Scale: {'that of every load' if shared else 'of this load alone'}.")
        figure = _figure(found, setting.look, setting.remarks, max(longest) if shared else own)
        yield setting.drawing(f"time_of_a_round{suffix}", figure, _sentence(block), notes)


def _longest(found: Mapping[str, Mapping[str, float]]) -> float:
    return max(sum(parts[name] for name in PARTS) for parts in found.values())


def _sentence(block: Block) -> str:
    return (
        f"Mean time of a step by part (ms) at {block.load.title}, over the window and all seeds; "
        "the number is their sum."
    )


def _notes(block: Block, found: Mapping[str, Mapping[str, float]]) -> list[str]:
    notes = []
    if any(parts["padding"] for parts in found.values()):
        notes.append(
            "Padding: the share of the verified tokens that is padding (up to a captured graph or "
            "the widest request), taken of the time to verify."
        )
    elif all(run.number("padding_share") is None for row in block.rows for run in row.runs):
        notes.append("Padding is not known.")
    if any(parts["prefill"] for parts in found.values()):
        notes.append(
            "Prefill: chunks read in steps, and prompts read between them, with those read again "
            "after a preemption, spread over the steps. Time without a request is left out."
        )
    else:
        note = block.rows[0].runs[0].data.get("ttft_note")
        if note == "queue only":
            notes.append("Prefill costs nothing: the latency profile has no prefill table.")
    lost = [row.label for row in block.rows if row.label not in found]
    if lost:
        notes.append(f"Not drawn, since the parts are not known: {', '.join(lost)}.")
    overlapped = [label for label, parts in found.items() if parts["hidden"] > 0.005]
    if overlapped:
        notes.append(f"Parts that run side by side count once in the sum: {', '.join(overlapped)}.")
    return notes


def round_parts(row: Row) -> dict[str, float] | None:
    """Milliseconds by part, means over seeds; ``total`` beside them, and what is ``hidden``."""
    found = [parts for parts in map(_parts, row.runs) if parts is not None]
    if not found:
        return None
    return {name: sum(one[name] for one in found) / len(found) for name in found[0]}


def _parts(run: Summary) -> dict[str, float] | None:
    step = run.data.get("step_ms") or {}
    if any(step.get(name) is None for name in ("draft", "verify", "host", "total")):
        return None
    padding = step["verify"] * (run.number("padding_share") or 0.0)
    between = _prefill_between(run)
    if between is None:
        return None
    prefill = (step.get("prefill") or 0.0) + between
    seen = step["draft"] + step["verify"] + step["host"] + (step.get("prefill") or 0.0)
    return {
        "draft": step["draft"],
        "verify": step["verify"] - padding,
        "padding": padding,
        "host": step["host"],
        "prefill": prefill,
        "total": step["total"] + between,
        "hidden": max(0.0, seen / step["total"] - 1) if step["total"] else 0.0,
    }


def _prefill_between(run: Summary) -> float | None:
    """Milliseconds of prompts read whole between steps, for each step of the window.

    With those read again after a preemption, which ``prefill_ms_total`` leaves out. None where
    files and keys do not say.
    """
    spent_ms = run.number("prefill_ms_total")
    server = run.data.get("server") or {}
    if not spent_ms or server.get("prefill", "whole") != "whole" or server.get("mixed"):
        return 0.0
    if run.data.get("live"):  # its steps have work of the host between them
        steps = steps_in_window(run)
        return spent_ms / steps if steps else None
    spent = spent_in_window(run)
    return 1e3 * spent.between_s / spent.steps if spent is not None and spent.steps else None


def _figure(
    found: Mapping[str, Mapping[str, float]],
    look: Mapping[str, Look],
    remarks: Sequence[str],
    longest: float,
) -> Figure:
    """A bar per policy, its name and mark at the left, its sum at the right; `longest`: in ms."""
    figure = new_figure(0.55 + 0.145 * max(3, len(found)))
    axes = figure.subplots()
    for at, parts in enumerate(found.values()):
        left = 0.0
        for name, style in PARTS.items():
            axes.barh(at, parts[name], 0.72, left, **{"linewidth": 0} | style)
            left += parts[name]
        text = f"{parts['total']:#.3g}".rstrip(".")
        axes.text(left + 0.012 * longest, at, text, va="center", fontsize=SMALL, color="0.25")
    size = 6.5 if len(found) <= 10 else SMALL
    axes.set_yticks(range(len(found)), [side_label(label) for label in found], fontsize=size)
    axes.tick_params(axis="y", length=0, pad=7)
    for at, label in enumerate(found):
        own = look[label]
        axes.plot(-0.02, at, marker=own.marker, color=own.colour, mec=own.edge, markersize=3,
                  mew=0.6, clip_on=False, transform=axes.get_yaxis_transform())  # fmt: skip
    axes.set_ylim(len(found) - 0.45, -0.55)
    axes.set_xlim(0, longest * 1.13)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("time of a step (ms)")
    shown = [name for name in PARTS if any(parts[name] > 0 for parts in found.values())]
    part_legend(figure, {name: PARTS[name] for name in shown})
    remark(figure, remarks)
    return despine(figure)
