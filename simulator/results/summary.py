"""What a run came to: all that its summary needs, from the tables of a run or from a stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from simulator.engine.fingerprint import own_sources
from simulator.policies.loading import policy_name
from simulator.results.facts import Facts
from simulator.results.latency import chunk_gaps, throughput, throughput_numbers
from simulator.results.quantiles import ERROR, Samples
from simulator.results.sums import RequestSums, RoundSums, StepSums, near_ties
from simulator.results.window import Window, find_window
from traces.recordings.recording import Recording

if TYPE_CHECKING:
    from simulator.engine.run import Job


class Anchors(Protocol):
    """Where the rounds of the whole run stood."""

    def near(self, recording: Recording, below: float) -> int | None:
        """Rounds whose two best target tokens are nearer than `below`; None: not recorded."""

    def sampled_error_bound(self, recording: Recording) -> dict[str, float]:
        """Mean and maximum over rounds."""


class Prompts(Protocol):
    """The prompts of the whole run."""

    def longer(self, tokens: int) -> float:
        """Share of requests whose prompt is longer."""


@dataclass(frozen=True, slots=True)
class Measures:
    """Sums over a run and its window."""

    window: Window
    duration_s: float
    steps: StepSums
    requests: RequestSums
    rounds: RoundSums
    gaps: Samples  # milliseconds between chunks
    anchors: Anchors
    prompts: Prompts

    def per_replica(self, whole: bool) -> list[dict[str, Any]]:
        """Requests, output tokens and busy share of the window by replica.

        Busy: in a step, or in the prefill of a prompt that is read `whole`, between steps. Chunks
        that are not computed within a step are left out.
        """
        steps, requests = self.steps, self.requests
        busy_s = steps.replica_s + (requests.replica_prefill_s if whole else 0.0)
        tokens = steps.replica_tokens + requests.replica_first
        seconds = self.window.seconds
        return [
            {
                "requests": int(requests.replica_ended[replica]),
                "output_tokens": int(tokens[replica]),
                "busy_share": float(busy_s[replica]) / seconds if seconds > 0 else None,
            }
            for replica in range(steps.replicas)
        ]


@dataclass(frozen=True, slots=True)
class _RoundAnchors:
    facts: Facts

    def near(self, recording: Recording, below: float) -> int | None:
        margin = recording.arrays.get("target_margin")
        return near_ties(self.facts, margin, below)["target_margin"]

    def sampled_error_bound(self, recording: Recording) -> dict[str, float]:
        from simulator.orders.families.sampled_fit import sampled_error_bound

        bound = sampled_error_bound(recording, self.facts.rounds["anchor"])
        return {"mean": float(bound.mean()), "max": float(bound.max())}


@dataclass(frozen=True, slots=True)
class _AllPrompts:
    tokens: np.ndarray  # (N,)

    def longer(self, tokens: int) -> float:
        return float((self.tokens > tokens).mean())


def measure(job: Job, facts: Facts) -> Measures:
    """All sums of a run whose tables are in memory."""
    window, replicas = find_window(facts), job.settings.server.replicas
    domains, limits = len(job.recording.domains), job.settings.goodput
    gaps = Samples()
    gaps.add(chunk_gaps(facts, window) * 1e3)
    return Measures(
        window=window,
        duration_s=facts.duration_s,
        steps=StepSums.of(facts, window, replicas),
        requests=RequestSums.of(facts, window, domains, replicas=replicas, limits=limits),
        rounds=RoundSums.of(facts, window),
        gaps=gaps,
        anchors=_RoundAnchors(facts),
        prompts=_AllPrompts(facts.requests["prompt_tokens"]),
    )


def served(steps: StepSums, requests: RequestSums) -> dict[str, Any]:
    """Summary keys about what the server did to requests, and how evenly."""
    return {
        "rejected": requests.rejected,
        "preemptions": requests.preemptions,
        "hand_overs": requests.hand_overs,
        "hand_over_share": requests.handed_over / max(1, requests.requests),
        "kv_blocks_peak": steps.kv_blocks_peak,
        "padding_share": steps.padding_share(),
        "fairness": requests.everyone.fairness.describe(),
    }


def live_numbers(facts: Facts, window: Window, domains: int, gpus: int = 1) -> dict[str, Any]:
    """The summary's keys of `served`, of exact percentiles, and per GPU: for a live run's facts."""
    output = throughput(facts, window)["output_throughput"]
    steps, requests = StepSums.of(facts, window, 1), RequestSums.of(facts, window, domains)
    return {
        **served(steps, requests),
        "output_throughput_per_gpu": None if output is None else output / gpus,
        "percentiles": "exact",
        "percentile_error": 0.0,
    }


# ---------------- The summary of a run: JSON types only, the same bytes for the same run.


if TYPE_CHECKING:
    from simulator.engine.run import Job

FORMAT = "specdec-summary"
VERSION = 1
MARGIN_BELOW = 1e-3  # top-2 target margins in logits that are reported as near ties
BUDGETS = tuple(2**power - 1 for power in range(1, 15))  # nodes: packed tokens are powers of two


def summarise(
    job: Job,
    facts: Facts,
    *,
    near_threshold: int | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All keys of ``summary.json``.

    Throughput, latency, acceptance and step times count the window; duration, completed,
    near ties and cost shares the whole run.

    Args:
        near_threshold: decisions near a threshold; None: those of the job's policy.
        more: further keys.
    """
    return summary_of(job, measure(job, facts), near_threshold=near_threshold, more=more)


def summary_of(
    job: Job,
    measures: Measures,
    *,
    near_threshold: int | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """`summarise` of what was measured, however the run was recorded."""
    steps, requests = measures.steps, measures.requests
    threshold = job.policy.near_threshold if near_threshold is None else near_threshold
    return {
        "format": FORMAT,
        "version": VERSION,
        **_what(job),
        "completed": requests.completed,
        "duration": measures.duration_s,
        "realised_request_rate": _realised_rate(job, measures),
        **_measured(job, measures),
        **served(steps, requests),
        **_by_replica(job, measures),
        "near_ties": {
            "target_margin": measures.anchors.near(job.recording, MARGIN_BELOW),
            "margin_below": MARGIN_BELOW,
            "order_ties": steps.order_ties,
            "threshold": int(threshold),
        },
        "sampled_error_bound": _sampled_error_bound(job, measures),
        "cost_shares": steps.cost_shares(),
        "acceptance_length_by_budget": _by_budget(job),
        "config_hash": job.config_hash,
        **(more or {}),
    }


def _measured(job: Job, measures: Measures) -> dict[str, Any]:
    """What counts the window."""
    steps, requests, window = measures.steps, measures.requests, measures.window
    limits = job.settings.goodput
    exact = requests.everyone.exactly and measures.gaps.exact
    rates = throughput_numbers(
        window,
        decoded=steps.committed,
        first=requests.first_tokens,
        prompts=requests.prompt_tokens,
        ended=requests.everyone.ended,
    )
    gpus, output = job.cost.num_gpus * job.settings.server.replicas, rates["output_throughput"]
    return {
        **rates,
        "output_throughput_per_gpu": None if output is None else output / gpus,
        **requests.everyone.latency(),
        **measures.gaps.statistics("itl"),
        "percentiles": "exact" if exact else "sketch",
        "percentile_error": 0.0 if exact else ERROR,
        "ttft_note": "queue only" if job.cost.prefill == "none" else "queue and prefill",
        **_prefill(job, measures),
        "request_goodput": requests.everyone.goodput(window.seconds) if limits else None,
        **measures.rounds.numbers(),
        "step_ms": steps.step_ms(),
        "by_domain": requests.by_domain(job.recording.domains, window.seconds),
    }


def _by_replica(job: Job, measures: Measures) -> dict[str, Any]:
    """Nothing for one replica."""
    server = job.settings.server
    if server.replicas == 1:
        return {}
    return {"per_replica": measures.per_replica(server.prefill == "whole" and not server.mixed)}


def _prefill(job: Job, measures: Measures) -> dict[str, float]:
    """Nothing where prefill costs nothing.

    The share is of prompts, over the whole run: longer than the table, or of a modelled cost.
    """
    profile, kind = job.cost.profile, job.cost.prefill
    if kind == "none":
        return {}
    modelled = kind == "modelled" or profile.modelled
    longest = 0 if modelled else profile.prefill[-1].prompt_tokens
    return {
        "prefill_ms_total": measures.requests.prefill_s * 1e3,
        "prefill_modelled_share": 1.0 if modelled else measures.prompts.longer(longest),
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
        "policy_code": {
            "target": job.config["policy"]["_target_"],
            "sha256": own_sources(type(job).__module__, job.config["policy"]),
        },
        "policy_fit": plain(job.policy.describe()),
        "trace": trace_facts(job) | {"unique_prompts": min(len(job.sequences), settings.requests)},
        "latency": latency_facts(job),
        "server": settings.server.model_dump(),
        "what_if": reason is not None,
        "what_if_reason": reason,
        "max_concurrency": settings.max_concurrency or settings.max_num_seqs,
        "request_rate": _asked_rate(job),
        "burstiness": settings.burstiness,
        "seed": settings.seed,
        "num_prompts": settings.requests,
        "ramp": settings.ramp,
        "goodput": None if settings.goodput is None else dict(settings.goodput),
    }


def _asked_rate(job: Job) -> float | str | None:
    """Requests per second asked for; inf: a closed loop, which sends when it can."""
    settings = job.settings
    if settings.workload.arrivals == "file":
        return job.lengths.describe()["played_rate"]
    return "inf" if settings.closed_loop else settings.request_rate


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


def _realised_rate(job: Job, measures: Measures) -> float | None:
    """Requests per second that arrived; random gaps of few requests miss the rate asked for."""
    requests = measures.requests
    if job.settings.closed_loop or requests.last_arrival_s <= 0:
        return None
    return requests.arrived / requests.last_arrival_s


def what_if_reason(job: Job) -> str | None:
    """Why a run predicts no engine that exists: drafts of one pair at the price of another."""
    pair, model = job.recording.meta["pair"], job.cost.profile.header.model
    if model in (pair, job.recording.meta["target"]["name"]):
        return None
    return f"drafts of {pair} at the step times of {model}"


def _sampled_error_bound(job: Job, measures: Measures) -> dict[str, float] | None:
    """How far drafts sampled from pools may be off, over the run's rounds; None: none sampled."""
    if not getattr(job.policy.order, "sampled", False):
        return None
    return measures.anchors.sampled_error_bound(job.recording)


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
