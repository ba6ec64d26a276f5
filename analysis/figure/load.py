"""Throughput, and goodput, against concurrency or the request rate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from analysis.compare import Row
from analysis.figure.parts import Drawing, Missing, Setting
from analysis.intervals import Estimate, estimate
from analysis.plots import draw_load, draw_throughput
from analysis.sweeps import Sweep, sweeps

GOODPUT = "request_goodput"
_BANDS = "Bands: 95 % Student-t intervals over seeds."


def draw_throughputs(setting: Setting) -> Iterator[Drawing]:
    """One figure per load axis."""
    found = sweeps(setting.comparison)
    if not found:
        raise Missing("no run has a concurrency or a request rate: all arrivals come at one time")
    for sweep in found:
        figure = draw_throughput(sweep, setting.look)
        notes = [*sweep.notes, *([_BANDS] if _has_bands(sweep) else [])]
        yield setting.drawing(f"throughput_vs_{sweep.name}", figure, sweep.sentence, notes)


def draw_goodputs(setting: Setting) -> Iterator[Drawing]:
    """One figure per load axis and set of objectives."""
    found = [one for sweep in sweeps(setting.comparison) for one in _by_objectives(sweep)]
    if not found:
        raise Missing('no run has objectives: goodput="tpot:50 e2el:2000"')
    for number, (limits, sweep) in enumerate(found):
        panels = [
            ("goodput (requests/s)", lambda row: row.estimate(GOODPUT)),
            ("requests within\nobjectives (%)", _share),
        ]
        figure = draw_load(sweep, setting.look, panels)
        for axes in figure.axes:
            axes.set_ylim(bottom=0)
        figure.axes[1].set_ylim(top=105)
        alike = [one for _, one in found if one.name == sweep.name]
        suffix = "" if len(alike) == 1 else f".{number}"
        objectives = " ".join(f"{name} {value:g} ms" for name, value in limits.items())
        text = (
            f"Requests per second, and share of requests, that meet every objective ({objectives}) "
            f"against {sweep.axis}."
        )
        notes = [one for one in sweep.notes if "speedup" not in one.lower()]
        notes += [_BANDS] if _has_bands(sweep) else []
        yield setting.drawing(f"goodput_vs_{sweep.name}{suffix}", figure, text, notes)


def _by_objectives(sweep: Sweep) -> Iterator[tuple[dict[str, float], Sweep]]:
    """The sweep's runs by what was asked of them; those without goodput left out."""
    texts = {
        json.dumps(run.data.get("goodput"))
        for point in sweep.points
        for run in point.row.runs
        if run.number(GOODPUT) is not None and run.data.get("goodput")
    }
    for text in sorted(texts):
        series = {}
        for label, points in sweep.series.items():
            kept = [p for p in points if json.dumps(p.row.runs[0].data.get("goodput")) == text]
            if kept:
                series[label] = tuple(kept)
        values = tuple(sorted({p.x for points in series.values() for p in points}))
        yield json.loads(text), replace(sweep, series=series, x_values=values)


def _share(row: Row) -> Estimate | None:
    pairs = [(run.number(GOODPUT), run.number("request_throughput")) for run in row.runs]
    return estimate([100 * good / rate for good, rate in pairs if good is not None and rate])


def _has_bands(sweep: Sweep) -> bool:
    return any(len(point.row.runs) > 1 for point in sweep.points)
