"""What a comparison rests on, said under every table and in every caption."""

from __future__ import annotations

from analysis.cells import percent
from analysis.compare import Comparison
from analysis.summaries import SOURCES, Summary

Note = tuple[str, str]  # heading, text


def notes(comparison: Comparison) -> list[Note]:
    """Recording, latency profile, origin of the step times, what-if, TTFT, seeds."""
    first = comparison.runs[0]
    return [
        ("recording", _recording(comparison)),
        ("latency", _latency(comparison)),
        ("step time", _step_time(comparison)),
        ("what-if", _what_if(first)),
        ("TTFT", first.data["ttft_note"] or "includes prefill"),
        (
            "TPOT",
            "of a request: its time after the first token over the tokens after it; p50 and p99 "
            "are over a run's requests, and shown is their mean over seeds",
        ),
        ("seeds", _seeds(comparison)),
        ("runs", _runs(comparison)),
        (
            "speedup",
            f"output throughput over {comparison.baseline} of the same recording, latency profile, "
            "load and seed; mean of the ratios",
        ),
    ]


def setting_title(comparison: Comparison) -> str:
    """One line that names a setting."""
    return f"{comparison.trace['recording']} on {comparison.latency['profile']}"


def _recording(comparison: Comparison) -> str:
    trace = comparison.trace
    parts = [f"{trace['recording']} ({trace['content_hash'][:12]})"]
    if trace.get("pair"):
        parts.append(f"pair {trace['pair']}")
    if trace.get("temperature") is not None:
        parts.append(f"temperature {trace['temperature']:g}")
    if trace.get("split"):
        parts.append(f"{trace['split']} split")
    domains = trace.get("domains")
    parts.append("domains " + ", ".join(domains) if domains else "all domains")
    return ", ".join(parts)


def _latency(comparison: Comparison) -> str:
    latency = comparison.latency
    parts = [latency["profile"]]
    parts += [str(latency[key]) for key in ("hardware", "model") if latency.get(key)]
    gpus = latency.get("num_gpus")
    if gpus:
        parts.append(f"{gpus} GPU" + ("s" if gpus > 1 else ""))
    parts += [str(latency[key]) for key in ("engine_mode", "kind") if latency.get(key)]
    text = ", ".join(parts)
    return f"{text}; source: {latency['source']}" if latency.get("source") else text


def _step_time(comparison: Comparison) -> str:
    """Range over policies and loads of each share, and where the model weighs most."""
    rows = [(row, block.load) for block in comparison.blocks for row in block.rows]
    parts = []
    for name in SOURCES:
        values = [row.cost_shares[name] for row, _ in rows]
        low, high = percent(min(values)), percent(max(values))
        parts.append(f"{name} {low}" if low == high else f"{name} {low} to {high}")
    row, load = max(rows, key=lambda pair: pair[0].cost_shares["modelled"])
    if row.cost_shares["modelled"] > 0:
        parts[SOURCES.index("modelled")] += f" (most: {row.label} at {load.title})"
    return ", ".join(parts)


def _what_if(run: Summary) -> str:
    if not run.data["what_if"]:
        return "no, recording and latency are of one model"
    return "YES: " + (run.data.get("what_if_reason") or "recording and latency differ in model")


def _runs(comparison: Comparison) -> str:
    sizes = {run.data["num_prompts"] for run in comparison.runs}
    low, high = min(sizes), max(sizes)
    requests = f"{low}" if low == high else f"{low} to {high}"
    return f"{len(comparison.runs)}, of {requests} requests each"


def _seeds(comparison: Comparison) -> str:
    seeds = [row.seeds for block in comparison.blocks for row in block.rows]
    every = sorted({seed for one in seeds for seed in one})
    text = ", ".join(map(str, every))
    if any(len(one) < len(every) for one in seeds):
        text += " (not every policy at every load has all of them)"
    if max(map(len, seeds)) < 2:
        return text + "; one run of each, so no intervals"
    # A seed reorders the same texts: the spread between texts is not in these intervals.
    return (
        text + "; ± and bands are 95 % Student-t intervals over seeds (arrivals and order of the "
        "same texts, not a sample of texts), absent with one seed"
    )
