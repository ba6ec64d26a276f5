"""What a comparison rests on, said under every table and in every caption."""

from __future__ import annotations

from analysis.compare.comparison import Comparison
from analysis.compare.settings import code_of, objective_words
from analysis.read.runs import SOURCES

Note = tuple[str, str]  # heading, text
_HASH = 12  # characters of a sha256


def notes(comparison: Comparison) -> list[Note]:
    """Recording, latency profile, origin of the step times, what-if, TTFT, seeds."""
    first, limits = comparison.first, comparison.objectives
    found = [("recording", _recording(comparison)), ("latency", _latency(comparison))]
    found += [("setting", comparison.differs)] if comparison.differs else []
    found += _workload(first.get("workload"))
    if limits:
        text = f"of requests that meet {objective_words(limits)} (ms), every objective"
        found.append(("goodput", text))
    return [
        *found,
        ("step time", _step_time(comparison)),
        ("what-if", f"YES: {comparison.why_what_if}" if first["what_if"] else
         "no, recording and latency are of one model"),
        ("TTFT", first["ttft_note"] or "includes prefill"),
        ("TPOT", "of a request: its time after the first token over the tokens after it; p50 and "
         "p99 are over a run's requests, and shown is their mean over seeds"),
        ("seeds", _seeds(comparison)),
        ("runs", _runs(comparison)),
        *_rejected(comparison),
        *source_notes(comparison),
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
    parts += [str(latency[key]) for key in ("hardware", "model") if latency.get(key)]
    gpus = latency.get("num_gpus")
    parts += [f"{gpus} GPU{'s' if gpus > 1 else ''}"] if gpus else []
    parts += [str(latency[key]) for key in ("engine_mode", "kind") if latency.get(key)]
    text = ", ".join(parts)
    return f"{text}; source: {latency['source']}" if latency.get("source") else text


def _workload(node: object) -> list[Note]:
    """Of a file, its name and content; of recorded texts nothing, unless their prompts are set."""
    if isinstance(node, dict):
        return [("workload", f"{node.get('file')}{_hash(node.get('sha256'))}")]
    return [("workload", str(node))] if node and node != "recorded texts" else []


def _step_time(comparison: Comparison) -> str:
    """Range over policies and loads of each share, and where the model weighs most."""
    rows, parts = comparison.rows, []
    for name in SOURCES:
        low, high = percent(rows[name].min()), percent(rows[name].max())
        text = f"{name} {low}" if low == high else f"{name} {low} to {high}"
        most = rows.loc[rows[name].idxmax()]
        if name == "modelled" and most[name] > 0:
            text += f" (most: {most['label']} at {most['load'].title})"
        parts.append(text)
    return ", ".join(parts)


def _seeds(comparison: Comparison) -> str:
    rows = comparison.rows
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


def _runs(comparison: Comparison) -> str:
    low, high = comparison.runs["num_prompts"].min(), comparison.runs["num_prompts"].max()
    requests = f"{low}" if low == high else f"{low} to {high}"
    return f"{len(comparison.runs)}, of {requests} requests each"


def _rejected(comparison: Comparison) -> list[Note]:
    rows = comparison.rows[comparison.rows["rejected"] > 0]
    if rows.empty:
        return []
    most = rows.loc[(rows["rejected"] / rows["sent"]).astype(float).idxmax()]
    where = f"{most['rejected']} of {most['sent']}, {most['label']} at {most['load'].title}"
    total, sent = rows["rejected"].sum(), rows["sent"].sum()
    text = f"{total} of {sent} requests of {len(rows)} rows (most: {where})"
    return [("rejected", f"{text}: in no latency, and no objective met")]


def source_notes(comparison: Comparison) -> list[Note]:
    """Policies whose source is not the same at all loads: at one load they have other labels."""
    codes = comparison.runs["data"].map(lambda data: tuple(sorted(code_of(data).items())))
    count = codes.groupby(comparison.runs["label"]).nunique()
    mixed = [label for label in comparison.labels if count[label] > 1]
    text = f"of another class or source at other loads: {', '.join(mixed)}"
    return [("source", text)] if mixed else []
