"""What a reader should know before trusting the numbers of some runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas

from analysis.compare.comparison import PARTLY, Comparison
from analysis.read.runs import numbers, values
from analysis.text.notes import percent, source_notes

FEWEST_FOR_P99 = 100  # requests; of fewer, the 99th percentile is one of the worst or between two
RATE_OFF = 0.1
_NAMED = 4  # examples that are spelled out
_ORIGINS = {
    "modelled": "computed by a model beyond what the profile's tables hold",
    "clamped": "read at the nearest context that the profile was timed at",
}


def warnings(comparison: Comparison) -> list[str]:
    """One sentence each, the weightiest first."""
    checks = (_of_model, _of_windows, _of_seeds, _of_baseline, _of_requests, _of_sketches, _free)
    return [text for check in checks for text in check(comparison)]


def _where(comparison: Comparison, runs: pandas.Series) -> str:
    """The rows with a run of those that are True, in words; empty where there is none."""
    rows = comparison.rows
    found = rows[rows.index.isin(comparison.runs.loc[runs, "row"])]
    if len(found) == len(rows):
        return "every policy at every load" if len(rows) > 1 else "this run"
    whole, single = [], []
    for load, own in found.groupby("load"):
        if 1 < len(own) == (rows["load"] == load).sum():
            whole.append(f"every policy at {load.title}")
        else:
            single += [f"{label} at {load.title}" for label in own["label"]]
    return _listed(whole + single)


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return "; ".join(texts[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _of_model(comparison: Comparison) -> Iterator[str]:
    """What-ifs, step times that were not measured, policies that changed between loads."""
    first, rows = comparison.first, comparison.rows
    if first["what_if"]:
        yield f"A what-if, which predicts no engine that exists: {comparison.why_what_if}."
    for name, text in _ORIGINS.items():
        most = rows.loc[rows[name].idxmax()]
        if most[name] > PARTLY:
            yield (
                f"Up to {percent(most[name])} of the step time is {name} ({text}); most in "
                f"{most['label']} at {most['load'].title}."
            )
    for _, text in source_notes(comparison):
        yield f"Lines over loads join runs {text}."


def _of_windows(comparison: Comparison) -> Iterator[str]:
    runs = comparison.runs
    closed = runs["load"].map(lambda load: load.closed)
    where = _where(comparison, closed & (values(runs, "window.kind") == "whole run"))
    if where:
        yield (
            "Too few requests for a full batch, so throughput is lower than it should be (it "
            f"counts the beginning and the end): {where}."
        )


def _of_seeds(comparison: Comparison) -> Iterator[str]:
    count = comparison.rows["count"]
    single = (count == 1).sum()
    if single == len(count):
        yield "One seed: no interval says how far another order of requests would differ."
    elif single:
        yield f"{single} of {len(count)} rows have one seed, and so no interval."
    elif count.min() == 2:
        yield "Two seeds: their 95 % intervals are wide (Student's t of one degree of freedom)."


def _of_baseline(comparison: Comparison) -> Iterator[str]:
    """One sentence for all loads without a baseline, one for all rows of some seeds without it."""
    base, rows = comparison.baseline, comparison.rows
    has = (rows["label"] == base).groupby(rows["load"]).any()
    alone = [load.title for load in has.index[~has]]
    if alone:
        where = "any load" if len(alone) == len(has) > 1 else _listed(alone)
        yield f"No {base} run of this setting at {where}: no ratio to it there."
    partly = rows[rows["load"].map(has) & (rows["paired"] < rows["count"])]
    texts = [
        f"{row['label']} at {row['load'].title} ({row['paired']} of {row['count']} seeds)"
        for _, row in partly.iterrows()
    ]
    if texts:
        text = f"Ratios rest on those seeds, with as many prompts, that {base} ran too"
        yield f"{text}: {_listed(texts)}."


def _of_requests(comparison: Comparison) -> Iterator[str]:
    runs = comparison.runs
    asked, came = runs["request_rate"], numbers(runs, "realised_request_rate")
    found = {
        f"99th percentiles are of fewer than {FEWEST_FOR_P99} requests a run": numbers(
            runs, "window.requests"
        )
        < FEWEST_FOR_P99,
        f"The drawn arrivals miss the asked rate by more than {RATE_OFF:.0%}": (asked > 0)
        & (came > 0)
        & ((came / asked - 1).abs() > RATE_OFF),
        "Requests were rejected, since they can never fit in memory": runs["rejected"] > 0,
        "Requests were pushed out of memory and read again": numbers(runs, "preemptions") > 0,
    }
    for text, which in found.items():
        where = _where(comparison, which)
        if where:
            yield f"{text}: {where}."


def _of_sketches(comparison: Comparison) -> Iterator[str]:
    where = _where(comparison, values(comparison.runs, "percentiles") == "sketch")
    if where:
        error = numbers(comparison.runs, "percentile_error").fillna(0.0).max()
        yield f"Percentiles are by a sketch, within {error:.2g} of the value: {where}."


def _free(comparison: Comparison) -> Iterator[str]:
    first, host = comparison.first, comparison.latency.get("host")
    if first.get("ttft_note") == "queue only":
        yield "Prefill costs nothing in this profile: TTFT is the wait in the queue alone."
    if isinstance(host, dict) and not any(host.values()):
        yield "No host work is charged beside the profile's step times (every latency.host is 0)."
    if first.get("live") and comparison.trace.get("recorded_target_is_this") is False:
        yield "Policies were fitted on a recording of another target than the live one."
