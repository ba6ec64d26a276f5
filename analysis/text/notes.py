"""What a comparison rests on, and what to know before its numbers are trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas

from analysis.compare.comparison import PARTLY, Comparison
from analysis.compare.settings import code_of, objective_words
from analysis.read.runs import SOURCES, numbers, values

Note = tuple[str, str]  # heading, text
FEWEST_FOR_P99 = 100  # requests; of fewer, the 99th percentile is one of the worst or between two
RATE_OFF = 0.1
_NAMED = 4  # examples that are spelled out
_HASH = 12  # characters of a sha256
_ORIGINS = {
    "modelled": "computed by a model beyond what the profile's tables hold",
    "clamped": "read at the nearest context that the profile was timed at",
}


def notes(comparison: Comparison) -> list[Note]:
    """Recording, latency profile, origin of the step times, what-if, TTFT, seeds."""
    first, limits = comparison.first, comparison.objectives
    found = [("recording", _recording(comparison)), ("latency", _latency(comparison))]
    found += [("setting", comparison.differs)] if comparison.differs else []
    work = first.get("workload")
    if isinstance(work, dict):
        found.append(("workload", f"{work.get('file')}{_hash(work.get('sha256'))}"))
    elif work and work != "recorded texts":
        found.append(("workload", str(work)))
    if limits:
        text = f"of requests that meet {objective_words(limits)} (ms), every objective"
        found.append(("goodput", text))
    low, high = comparison.runs["num_prompts"].min(), comparison.runs["num_prompts"].max()
    requests = f"{low}" if low == high else f"{low} to {high}"
    return [
        *found,
        ("step time", ", ".join(_step_time(comparison.rows))),
        ("what-if", f"YES: {comparison.why_what_if}" if first["what_if"] else
         "no, recording and latency are of one model"),
        ("TTFT", first["ttft_note"] or "includes prefill"),
        ("TPOT", "of a request: its time after the first token over the tokens after it; p50 and "
         "p99 are over a run's requests, and shown is their mean over seeds"),
        ("seeds", _seeds(comparison.rows)),
        ("runs", f"{len(comparison.runs)}, of {requests} requests each"),
        *_rejected(comparison.rows),
        *(("source", text) for text in _sources(comparison)),
        ("speedup", f"output throughput over {comparison.baseline} of the same recording, latency "
         "profile, load and seed; mean of the ratios"),
    ]  # fmt: skip


def percent(share: float) -> str:
    """A share as text; what is not zero never reads 0%, what is not all never 100%."""
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{share:.0%}"


def _hash(text: object) -> str:
    return f" ({text[:_HASH]})" if isinstance(text, str) and text else ""


def _recording(comparison: Comparison) -> str:
    trace = comparison.trace
    parts = [trace["recording"] + _hash(trace["content_hash"])]
    parts += [f"pair {trace['pair']}"] if trace.get("pair") else []
    if trace.get("temperature") is not None:
        parts.append(f"temperature {trace['temperature']:g}")
    parts += [f"{trace['split']} split"] if trace.get("split") else []
    domains = trace.get("domains")
    parts.append("domains " + ", ".join(domains) if domains else "all domains")
    return ", ".join(parts)


def _latency(comparison: Comparison) -> str:
    latency = comparison.latency
    parts = [latency["profile"] + _hash(latency.get("content_hash"))]
    told = latency.get("told_content_hash")
    parts += [f"policies told {latency.get('told')}{_hash(told)}"] if told else []
    gpus = latency.get("num_gpus")
    own = latency | {"num_gpus": gpus and f"{gpus} GPU{'s' if gpus > 1 else ''}"}
    keys = ("hardware", "model", "num_gpus", "engine_mode", "kind")
    text = ", ".join([*parts, *(str(own[key]) for key in keys if own.get(key))])
    return f"{text}; source: {latency['source']}" if latency.get("source") else text


def _step_time(rows: pandas.DataFrame) -> Iterator[str]:
    """Range over policies and loads of each share, and where the model weighs most."""
    for name in SOURCES:
        low, high = percent(rows[name].min()), percent(rows[name].max())
        text = f"{name} {low}" if low == high else f"{name} {low} to {high}"
        most = rows.loc[rows[name].idxmax()]
        if name == "modelled" and most[name] > 0:
            text += f" (most: {most['label']} at {most['load'].title})"
        yield text


def _seeds(rows: pandas.DataFrame) -> str:
    every = sorted(set().union(*rows["seeds"]))
    text = ", ".join(map(str, every))
    if rows["count"].min() < len(every):
        text += " (not every policy at every load has all of them)"
    if rows["count"].max() < 2:
        return text + "; one run of each, so no intervals"
    # A seed reorders the same texts: the spread between texts is not in these intervals.
    return (
        text + "; ± and bands are 95 % Student-t intervals over seeds (arrivals and order of the "
        "same texts, not a sample of texts), absent with one seed"
    )


def _rejected(rows: pandas.DataFrame) -> Iterator[Note]:
    rows = rows[rows["rejected"] > 0]
    if len(rows):
        most = rows.loc[(rows["rejected"] / rows["sent"]).astype(float).idxmax()]
        where = f"{most['rejected']} of {most['sent']}, {most['label']} at {most['load'].title}"
        total, sent = rows["rejected"].sum(), rows["sent"].sum()
        text = f"{total} of {sent} requests of {len(rows)} rows (most: {where})"
        yield "rejected", f"{text}: in no latency, and no objective met"


def _sources(comparison: Comparison) -> Iterator[str]:
    """Policies whose source is not the same at all loads: at one load they have other labels."""
    codes = comparison.runs["data"].map(lambda data: tuple(sorted(code_of(data).items())))
    count = codes.groupby(comparison.runs["label"]).nunique()
    mixed = [label for label in comparison.labels if count[label] > 1]
    if mixed:
        yield f"of another class or source at other loads: {', '.join(mixed)}"


# ---------------------------------------------------------------- before you trust the numbers


def warnings(comparison: Comparison) -> list[str]:
    """One sentence each, the weightiest first."""
    runs = comparison.runs
    closed = runs["load"].map(lambda load: load.closed)
    short = (
        "Too few requests for a full batch, so throughput is lower than it should be (it counts "
        "the beginning and the end)"
    )
    asked, came = runs["request_rate"], numbers(runs, "realised_request_rate")
    off = (asked > 0) & (came > 0) & ((came / asked - 1).abs() > RATE_OFF)
    few = numbers(runs, "window.requests") < FEWEST_FOR_P99
    error = numbers(runs, "percentile_error")
    of_runs = {
        f"99th percentiles are of fewer than {FEWEST_FOR_P99} requests a run": few,
        f"The drawn arrivals miss the asked rate by more than {RATE_OFF:.0%}": off,
        "Requests were rejected, since they can never fit in memory": runs["rejected"] > 0,
        "Requests were pushed out of memory and read again": numbers(runs, "preemptions") > 0,
        f"Percentiles are by a sketch, within {error.fillna(0.0).max():.2g} of the value":
            values(runs, "percentiles") == "sketch",
    }  # fmt: skip
    return [
        *_of_model(comparison),
        *_where(comparison, {short: closed & (values(runs, "window.kind") == "whole run")}),
        *_of_seeds(comparison),
        *_where(comparison, of_runs),
        *_free(comparison),
    ]


def _where(comparison: Comparison, found: Mapping[str, pandas.Series]) -> Iterator[str]:
    """Each text that is true of some runs, with their rows in words."""
    rows = comparison.rows
    for text, which in found.items():
        own = rows[rows.index.isin(comparison.runs.loc[which, "row"])]
        whole, single = [], []
        for load, at_load in own.groupby("load"):
            if 1 < len(at_load) == (rows["load"] == load).sum():
                whole.append(f"every policy at {load.title}")
            else:
                single += [f"{label} at {load.title}" for label in at_load["label"]]
        where = _listed(whole + single)
        if len(own) == len(rows):
            where = "every policy at every load" if len(rows) > 1 else "this run"
        if len(own):
            yield f"{text}: {where}."


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return "; ".join(texts[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _of_model(comparison: Comparison) -> Iterator[str]:
    """What-ifs, step times that were not measured, policies that changed between loads."""
    rows = comparison.rows
    if comparison.first["what_if"]:
        yield f"A what-if, which predicts no engine that exists: {comparison.why_what_if}."
    for name, text in _ORIGINS.items():
        most = rows.loc[rows[name].idxmax()]
        if most[name] > PARTLY:
            yield (
                f"Up to {percent(most[name])} of the step time is {name} ({text}); most in "
                f"{most['label']} at {most['load'].title}."
            )
    for text in _sources(comparison):
        yield f"Lines over loads join runs {text}."


def _of_seeds(comparison: Comparison) -> Iterator[str]:
    """Too few of them, loads without a baseline, rows some of whose seeds have none."""
    base, rows = comparison.baseline, comparison.rows
    count = rows["count"]
    single = (count == 1).sum()
    if single == len(count):
        yield "One seed: no interval says how far another order of requests would differ."
    elif single:
        yield f"{single} of {len(count)} rows have one seed, and so no interval."
    elif count.min() == 2:
        yield "Two seeds: their 95 % intervals are wide (Student's t of one degree of freedom)."
    has = (rows["label"] == base).groupby(rows["load"]).any()
    alone = [load.title for load in has.index[~has]]
    if alone:
        where = "any load" if len(alone) == len(has) > 1 else _listed(alone)
        yield f"No {base} run of this setting at {where}: no ratio to it there."
    partly = rows[rows["load"].map(has) & (rows["paired"] < count)]
    if len(partly):
        texts = [
            f"{row['label']} at {row['load'].title} ({row['paired']} of {row['count']} seeds)"
            for _, row in partly.iterrows()
        ]
        text = f"Ratios rest on those seeds, with as many prompts, that {base} ran too"
        yield f"{text}: {_listed(texts)}."


def _free(comparison: Comparison) -> Iterator[str]:
    first, host = comparison.first, comparison.latency.get("host")
    if first.get("ttft_note") == "queue only":
        yield "Prefill costs nothing in this profile: TTFT is the wait in the queue alone."
    if isinstance(host, dict) and not any(host.values()):
        yield "No host work is charged beside the profile's step times (every latency.host is 0)."
    if first.get("live") and comparison.trace.get("recorded_target_is_this") is False:
        yield "Policies were fitted on a recording of another target than the live one."
