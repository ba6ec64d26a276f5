"""The summary of a run: JSON types only, the same bytes for the same run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.acceptance import acceptance, by_domain, near_ties
from simulator.cost import Source, shares
from simulator.ledger import Facts
from simulator.load_policy import policy_name
from simulator.metrics import latency, prefill_ms, request_goodput, step_parts, throughput
from simulator.window import Window, find_window

if TYPE_CHECKING:
    from simulator.run import Job

FORMAT = "specdec-summary"
VERSION = 1
MARGIN_BELOW = 1e-3  # top-2 target margins in logits that are reported as near ties
BUDGETS = tuple(2**power - 1 for power in range(1, 15))  # nodes: packed tokens are powers of two


def summarise(job: Job, facts: Facts) -> dict[str, Any]:
    """All keys of ``summary.json``.

    Throughput, latency, acceptance and step times count the window; duration, completed,
    near ties and cost shares the whole run.
    """
    window = find_window(facts)
    return {
        "format": FORMAT,
        "version": VERSION,
        **_what(job),
        "completed": int(np.count_nonzero(~np.isnan(facts.requests["finish_s"]))),
        "duration": facts.duration_s,
        "realised_request_rate": _realised_rate(job, facts),
        **_measured(job, facts, window),
        "near_ties": near_ties(facts, job.recording.arrays.get("target_margin"), MARGIN_BELOW)
        | {
            "order_ties": int(facts.steps["order_ties"].sum()),
            "threshold": int(job.policy.near_threshold),
        },
        "sampled_error_bound": _sampled_error_bound(job, facts),
        "cost_shares": _cost_shares(facts),
        "acceptance_length_by_budget": _by_budget(job),
        "config_hash": job.config_hash,
    }


def _measured(job: Job, facts: Facts, window: Window) -> dict[str, Any]:
    return {
        **throughput(facts, window),
        **latency(facts, window),
        "ttft_note": "queue and prefill" if job.cost.profile.prefill else "queue only",
        **_prefill(job, facts, window),
        "request_goodput": request_goodput(facts, window, job.settings.goodput),
        **acceptance(facts, window),
        "step_ms": step_parts(facts, window),
        "by_domain": by_domain(facts, window, job.recording.domains),
    }


def _prefill(job: Job, facts: Facts, window: Window) -> dict[str, float]:
    """Nothing for a profile without a prefill table: there prefill costs nothing.

    The share is of prompts, over the whole run: longer than the table, or of a modelled profile.
    """
    profile = job.cost.profile
    if not profile.prefill:
        return {}
    longer = facts.requests["prompt_tokens"] > profile.prefill[-1].prompt_tokens
    return {
        "prefill_ms_total": prefill_ms(facts, window),
        "prefill_modelled_share": 1.0 if profile.modelled else float(longer.mean()),
    }


def _what(job: Job) -> dict[str, Any]:
    """What was run: policy, recording, profile and load."""
    settings = job.settings
    reason = what_if_reason(job)
    return {
        "policy": policy_name(job.config["policy"]),
        "policy_config": {
            k: v for k, v in job.config["policy"].items() if k != "name" and k[0] != "_"
        },
        "policy_fit": plain(job.policy.describe()),
        "trace": trace_facts(job) | {"unique_prompts": min(len(job.sequences), settings.requests)},
        "latency": latency_facts(job),
        "server": {"max_num_seqs": settings.max_num_seqs},
        "what_if": reason is not None,
        "what_if_reason": reason,
        "max_concurrency": settings.max_concurrency or settings.max_num_seqs,
        "request_rate": "inf" if math.isinf(settings.request_rate) else settings.request_rate,
        "burstiness": settings.burstiness,
        "seed": settings.seed,
        "num_prompts": settings.requests,
        "goodput": None if settings.goodput is None else dict(settings.goodput),
    }


def trace_facts(job: Job) -> dict[str, Any]:
    """What is replayed by `job`, whose `config` and `recording` alone are read."""
    node, recording = job.config["trace"], job.recording
    return {
        "recording": node["recording"],
        "content_hash": recording.content_hash,
        "pair": recording.meta["pair"],
        "temperature": recording.temperature,
        "split": node.get("split", "report"),
        "domains": node.get("domains") or list(recording.domains),
    }


def latency_facts(job: Job) -> dict[str, Any]:
    """What prices the steps of `job`, whose `config` and `cost` alone are read."""
    header, node = job.cost.profile.header, job.config["latency"]
    priced = {key: node.get(key) for key in ("host", "packing", "draft_steps", "strict")}
    return {
        **priced,
        "profile": job.cost.profile.name,
        "hardware": header.hardware,
        "model": header.model,
        "num_gpus": header.num_gpus,
        "kind": header.kind,
        "engine_mode": header.engine,
        "source": header.source,
    }


def _realised_rate(job: Job, facts: Facts) -> float | None:
    """Requests per second that arrived; random gaps of few requests miss the rate asked for."""
    last_s = float(np.max(facts.requests["arrival_s"]))
    return None if job.settings.closed_loop or last_s <= 0 else job.settings.requests / last_s


def what_if_reason(job: Job) -> str | None:
    """Why a run predicts no engine that exists: drafts of one pair at the price of another."""
    pair, model = job.recording.meta["pair"], job.cost.profile.header.model
    if model in (pair, job.recording.meta["target"]["name"]):
        return None
    return f"drafts of {pair} at the step times of {model}"


def _cost_shares(facts: Facts) -> dict[str, dict[str, float]]:
    source, step_s = facts.steps["source"], facts.steps["step_s"]
    kinds = [int(kind) for kind in np.unique(source)]
    counts = {Source(kind): int(np.count_nonzero(source == kind)) for kind in kinds}
    seconds = {Source(kind): float(step_s[source == kind].sum()) for kind in kinds}
    return shares(counts, seconds)


def _sampled_error_bound(job: Job, facts: Facts) -> dict[str, float] | None:
    """How far drafts sampled from pools may be off, over the run's rounds; None: none sampled."""
    if not getattr(job.policy.order, "sampled", False):
        return None
    from simulator.orders.sampled_fit import sampled_error_bound

    bound = sampled_error_bound(job.recording, facts.rounds["anchor"])
    return {"mean": float(bound.mean()), "max": float(bound.max())}


def _by_budget(job: Job) -> dict[str, float] | None:
    """R by node budget: the policy's first order replayed over the served texts, None without.

    Every budget follows its own trajectory; an order that is not nested has one, its whole size.
    """
    from simulator.orders.replay import acceptance_length_by_budget

    if job.policy.order is None:
        return None
    table = job.tables(job.policy.order)
    sequences = job.sequences[job.recording.anchor_counts[job.sequences] > 0]
    if not len(sequences):
        return None
    largest = table.max_nodes
    smaller = [budget for budget in BUDGETS if budget < largest] if table.nested else []
    lengths = acceptance_length_by_budget(table, job.recording, sequences, [*smaller, largest])
    return {str(budget): float(length) for budget, length in lengths.items()}


def plain(value: Any) -> Any:
    """`value` in JSON types: numpy scalars and arrays become numbers and lists."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    return value
