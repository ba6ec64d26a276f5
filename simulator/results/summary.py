"""The summary of a run, replayed or live: JSON types only, the same bytes for the same run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.policies.loading import policy_name
from simulator.results.sums import Sums

if TYPE_CHECKING:
    from simulator.engine.run import Job
    from simulator.engine.settings import Settings
    from simulator.policy import Policy
    from simulator.results.facts import Facts
    from simulator.results.ledger import Ledger

FORMAT = "specdec-summary"
VERSION = 1
MARGIN_BELOW = 1e-3  # top-2 target margins in logits that are reported as near ties
BUDGETS = tuple(2**power - 1 for power in range(1, 15))  # nodes: packed tokens are powers of two


def summary_of(
    sums: Sums,
    settings: Settings,
    policy: Policy,
    node: Mapping[str, Any],
    *,
    gpus: int = 1,
    margin: np.ndarray | None = None,
    near_threshold: int | None = None,
) -> dict[str, Any]:
    """The keys of ``summary.json`` that every run has, live or replayed.

    Throughput, latency, acceptance and step times count the window; duration, completed,
    near ties and cost shares the whole run.

    Args:
        node: the policy's in the configuration. gpus: of all replicas.
        margin: (A,) top-2 margin of the target in logits by anchor; None: not recorded.
        near_threshold: decisions near a threshold; None: those of the policy.
    """
    from simulator.engine.fingerprint import own_sources

    threshold = policy.near_threshold if near_threshold is None else near_threshold
    closed = settings.closed_loop
    return {
        "format": FORMAT,
        "version": VERSION,
        "policy": policy_name(node),
        "policy_config": {k: v for k, v in node.items() if k != "name" and k[0] != "_"},
        "policy_code": {
            "target": node["_target_"],
            "sha256": own_sources("simulator.engine.run", node),
        },
        "policy_fit": plain(policy.describe()),
        "server": settings.server.model_dump(),
        "max_concurrency": settings.max_concurrency or settings.server.max_num_seqs,
        "request_rate": "inf" if closed else settings.request_rate,  # it sends when it can
        "burstiness": settings.burstiness,
        "seed": settings.seed,
        "num_prompts": settings.requests,
        "ramp": settings.ramp,
        "goodput": None if settings.goodput is None else dict(settings.goodput),
        "realised_request_rate": None if closed else sums.realised_rate(),
        **sums.numbers(gpus),
        "near_ties": {
            "target_margin": sums.anchors.near(margin, MARGIN_BELOW),
            "margin_below": MARGIN_BELOW,
            "order_ties": sums.steps.order_ties,
            "threshold": int(threshold),
        },
    }


# ---------------- What a replay's summary says beside that.


def sums_for(job: Job, exact: int | None = None) -> Sums:
    """Empty sums, as the summary of a job needs them; percentiles hold `exact` values, or all."""
    profile = job.cost.profile
    modelled = job.cost.prefill == "none" or _models_prefill(job)
    return Sums(
        job.recording.domains,
        replicas=job.settings.server.replicas,
        limits=job.settings.goodput,
        longest_prompt=0 if modelled else profile.prefill[-1].prompt_tokens,
        exact=exact,
    )


def finish(
    job: Job,
    ledger: Ledger,
    *,
    near_threshold: int | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Check a run, write its results where its ledger has files, and return its summary.

    Args:
        ledger: whose sums are `sums_for(job)`.
        near_threshold: see `summary_of`. more: further keys.

    Raises:
        InvariantError: the run contradicts itself; nothing is written.
    """
    sums = ledger.close()
    ledger.accounts.check(job.settings.server.kv_blocks)
    summary = _of_job(job, sums, near_threshold) | dict(more or {})
    if ledger.files is not None:
        ledger.files.publish(summary)
    return summary


def summarise(job: Job, facts: Facts) -> dict[str, Any]:
    """The summary of a job from the tables of its run."""
    sums = sums_for(job)
    return _of_job(job, sums.take(facts))


def _of_job(job: Job, sums: Sums, near_threshold: int | None = None) -> dict[str, Any]:
    settings, reason = job.settings, what_if_reason(job)
    server, prefill = settings.server, job.cost.prefill
    summary = summary_of(
        sums,
        settings,
        job.policy,
        job.config["policy"],
        gpus=job.cost.num_gpus * server.replicas,
        margin=job.recording.arrays.get("target_margin"),
        near_threshold=near_threshold,
    ) | {
        "trace": trace_facts(job) | {"unique_prompts": min(len(job.sequences), settings.requests)},
        "latency": latency_facts(job),
        "what_if": reason is not None,
        "what_if_reason": reason,
        "ttft_note": "queue only" if prefill == "none" else "queue and prefill",
        "sampled_error_bound": None,  # how far drafts sampled from pools may be off
        "acceptance_length_by_budget": _by_budget(job),
        "config_hash": job.config_hash,
    }
    if settings.workload.arrivals == "file":
        summary["request_rate"] = job.lengths.describe()["played_rate"]
    if prefill != "none":
        longer = sums.longer_prompts / sums.requests  # of the whole run's prompts
        summary["prefill_ms_total"] = sums.prefill_s * 1e3
        summary["prefill_modelled_share"] = 1.0 if _models_prefill(job) else longer
    if server.replicas > 1:
        whole = server.prefill == "whole" and not server.mixed
        summary["per_replica"] = sums.per_replica(whole)
    if getattr(job.policy.order, "sampled", False):
        summary["sampled_error_bound"] = sums.anchors.sampled_error_bound(job.recording)
    return summary


def _models_prefill(job: Job) -> bool:
    return job.cost.prefill == "modelled" or job.cost.profile.modelled


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
    names = ("host", "packing", "draft_steps", "strict", "mode", "graph_sizes", "cliffs")
    priced = {key: node.get(key) for key in (*names, "roofline")}
    return {
        **priced,
        "prefill": job.cost.prefill,
        "profile": job.cost.profile.name,
        "content_hash": job.cost.profile.content_hash,
        "hardware": header.hardware,
        "model": header.model,
        "num_gpus": header.num_gpus,
        "kind": header.kind,
        "engine_mode": header.engine,
        "source": header.source,
    }


def what_if_reason(job: Job) -> str | None:
    """Why a run predicts no engine that exists: drafts of one pair at the price of another."""
    pair, model = job.recording.meta["pair"], job.cost.profile.header.model
    if model in (pair, job.recording.meta["target"]["name"]):
        return None
    return f"drafts of {pair} at the step times of {model}"


_known_budgets: dict[tuple, dict[str, float]] = {}  # of a sweep's jobs, which ask for few again
_MOST_KNOWN = 256


def _by_budget(job: Job) -> dict[str, float] | None:
    """R by node budget: the policy's first order replayed over the served texts, None without.

    Every budget follows its own trajectory; an order that is not nested has one, its whole size.
    """
    from simulator.orders.replay import acceptance_length_by_budget

    order, recording = job.policy.order, job.recording
    sequences = job.sequences[recording.anchor_counts[job.sequences] > 0]
    if order is None or not len(sequences):
        return None
    key = order, recording.content_hash, sequences.tobytes()
    if key not in _known_budgets:
        table = job.tables(order)
        largest = table.max_nodes
        smaller = [budget for budget in BUDGETS if budget < largest] if table.nested else []
        lengths = acceptance_length_by_budget(table, recording, sequences, [*smaller, largest])
        if len(_known_budgets) >= _MOST_KNOWN:
            _known_budgets.clear()
        _known_budgets[key] = {str(budget): float(one) for budget, one in lengths.items()}
    return dict(_known_budgets[key])


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
