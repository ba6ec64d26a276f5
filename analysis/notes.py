"""What a comparison rests on, said under every table and in every caption."""

from __future__ import annotations

from analysis.cells import percent
from analysis.compare import Comparison
from analysis.settings import objective_words
from analysis.summaries import SOURCES, Summary
from analysis.variants import code_of

Note = tuple[str, str]  # heading, text
_HASH = 12  # characters of a sha256


def notes(comparison: Comparison) -> list[Note]:
    """Recording, latency profile, origin of the step times, what-if, TTFT, seeds."""
    first = comparison.runs[0]
    setting = [("setting", comparison.differs)] if comparison.differs else []
    return [
        ("recording", _recording(comparison)),
        ("latency", _latency(comparison)),
        *setting,
        *_workload(first),
        *_goodput(comparison),
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
        *_rejected(comparison),
        *source_notes(comparison),
        (
            "speedup",
            f"output throughput over {comparison.baseline} of the same recording, latency profile, "
            "load and seed; mean of the ratios",
        ),
    ]


def setting_title(comparison: Comparison) -> str:
    """One line that names a setting."""
    name = f"{comparison.trace['recording']} on {comparison.latency['profile']}"
    return f"{name}; {comparison.differs}" if comparison.differs else name


def _recording(comparison: Comparison) -> str:
    trace = comparison.trace
    parts = [trace["recording"] + _hash(trace["content_hash"])]
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
    parts = [latency["profile"] + _hash(latency.get("content_hash"))]
    told = latency.get("told_content_hash")
    parts += [f"policies told {latency.get('told')}{_hash(told)}"] if told else []
    parts += [str(latency[key]) for key in ("hardware", "model") if latency.get(key)]
    gpus = latency.get("num_gpus")
    if gpus:
        parts.append(f"{gpus} GPU" + ("s" if gpus > 1 else ""))
    parts += [str(latency[key]) for key in ("engine_mode", "kind") if latency.get(key)]
    text = ", ".join(parts)
    return f"{text}; source: {latency['source']}" if latency.get("source") else text


def _hash(text: object) -> str:
    return f" ({text[:_HASH]})" if isinstance(text, str) and text else ""


def _workload(run: Summary) -> list[Note]:
    """Of a file, its name and content; of recorded texts nothing, unless their prompts are set."""
    node = run.data.get("workload")
    if isinstance(node, dict):
        return [("workload", f"{node.get('file')}{_hash(node.get('sha256'))}")]
    return [("workload", str(node))] if node and node != "recorded texts" else []


def _goodput(comparison: Comparison) -> list[Note]:
    limits = comparison.objectives
    if not limits:
        return []
    return [("goodput", f"of requests that meet {objective_words(limits)} (ms), every objective")]


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


def _rejected(comparison: Comparison) -> list[Note]:
    rows = [(row, block.load) for block in comparison.blocks for row in block.rows if row.rejected]
    if not rows:
        return []
    total, sent = sum(row.rejected for row, _ in rows), sum(row.requests for row, _ in rows)
    row, load = max(rows, key=lambda pair: pair[0].rejected / pair[0].requests)
    most = f"most: {row.rejected} of {row.requests}, {row.label} at {load.title}"
    text = f"{total} of {sent} requests of {len(rows)} rows ({most})"
    return [("rejected", f"{text}: in no latency, and no objective met")]


def source_notes(comparison: Comparison) -> list[Note]:
    """Policies whose source is not the same at all loads: at one load they have other labels."""
    found: dict[str, set[tuple]] = {}
    for block in comparison.blocks:
        for row in block.rows:
            found.setdefault(row.label, set()).add(tuple(sorted(code_of(row.runs[0]).items())))
    mixed = ", ".join(label for label, codes in found.items() if len(codes) > 1)
    return [("source", f"of another class or source at other loads: {mixed}")] if mixed else []


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
