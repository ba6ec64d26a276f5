"""Throughput, and goodput, against concurrency or the request rate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analysis.compare import Row
from analysis.figure.parts import Drawing, Missing, Setting
from analysis.intervals import Estimate, estimate
from analysis.plots import Of, draw_load, draw_throughput
from analysis.settings import objective_words
from analysis.summaries import Summary
from analysis.sweeps import Sweep, sweeps
from traces.common.columns import FLAGS, SECONDS, read_columns

GOODPUT = "request_goodput"
_REQUESTS = "requests.parquet"
_COLUMNS = {"arrival_s": SECONDS, "measured": FLAGS, "rejected": FLAGS}
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
    """One figure per load axis; a setting has one set of objectives."""
    limits = setting.comparison.objectives
    found = [one for one in map(_judged, sweeps(setting.comparison)) if one.points]
    if not found or not limits:
        raise Missing('no run has objectives: goodput="tpot:50 e2el:2000"')
    for sweep in found:
        panels: list[tuple[str, Of]] = [
            ("goodput (requests/s)", lambda row: row.estimate(GOODPUT)),
            ("requests within\nobjectives (%)", attained),
        ]
        shares = [attained(point.row) for point in sweep.points]
        within = f"within {objective_words(limits)} ms"
        figure = draw_load(sweep, setting.look, panels if any(shares) else panels[:1], [within])
        for axes in figure.axes:
            axes.set_ylim(bottom=0)
            for line in axes.lines:  # marks at 0 whole
                line.set_clip_on(False)
        for axes in figure.axes[1:]:
            axes.set_ylim(top=105)
        text = (
            "Requests per second, and share of requests, that meet every objective "
            f"({objective_words(limits)}, in ms) against {sweep.axis}{sweep.kept}."
        )
        notes = [one for one in sweep.notes if "speedup" not in one.lower()]
        notes += [*_share_notes(sweep), *([_BANDS] if _has_bands(sweep) else [])]
        yield setting.drawing(f"goodput_vs_{sweep.name}", figure, text, notes)


def _judged(sweep: Sweep) -> Sweep:
    """The sweep's points that have a goodput."""
    every = {
        label: tuple(point for point in points if point.row.estimate(GOODPUT) is not None)
        for label, points in sweep.series.items()
    }
    series = {label: points for label, points in every.items() if points}
    values = tuple(sorted({point.x for points in series.values() for point in points}))
    return replace(sweep, series=series, x_values=values)


def attained(row: Row) -> Estimate | None:
    """Percent of the window's requests, measured or rejected; the latter meet no objective."""
    shares = [_share(run) for run in row.runs]
    return estimate([100 * share for share in shares if share is not None])


def _share(run: Summary) -> float | None:
    """None where it is not known how many requests were measured beside those rejected."""
    good, rate = run.number(GOODPUT), run.number("request_throughput")
    if good is None or not rate:
        return None
    rejected, window = run.number("rejected"), run.data.get("window") or {}
    if not rejected:
        return good / rate
    path = run.path.with_name(_REQUESTS)
    if not path.is_file():
        measured = window.get("requests") if window.get("kind") == "whole run" else None
        return None if measured is None else good / rate * measured / (measured + rejected)
    if "start_s" not in window or "end_s" not in window:
        return None
    columns = read_columns(path, _COLUMNS, "the requests", run.data["num_prompts"])
    came = columns["arrival_s"]
    inside = (came >= window["start_s"]) & (came <= window["end_s"])
    measured = int(columns["measured"].sum())
    judged = measured + int((columns["rejected"] & inside).sum())
    return good / rate * measured / judged if judged else None


def _share_notes(sweep: Sweep) -> list[str]:
    rows = [point.row for point in sweep.points if point.row.rejected]
    if not rows:
        return []
    notes = [
        "Shares are of the requests measured, or rejected in the measured window; rejected ones "
        "meet no objective."
    ]
    if any(_share(run) is None for row in rows for run in row.runs):
        notes.append("No share where the table of the requests is missing.")
    return notes


def _has_bands(sweep: Sweep) -> bool:
    return any(len(point.row.runs) > 1 for point in sweep.points)
