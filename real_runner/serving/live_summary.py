"""The summary of a live run: the simulator's keys, measured instead of predicted."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from real_runner.engine.clock import PHASES
from real_runner.probing.header import hardware, type_name
from real_runner.serving.live import Live
from real_runner.serving.load import realised_rate
from simulator.cost import Source, shares
from simulator.engine.arrivals import Workload
from simulator.engine.fingerprint import identity, named_files, own_sources, sources
from simulator.engine.run import Job
from simulator.engine.settings import Settings
from simulator.policies.loading import policy_name
from simulator.policy import Policy
from simulator.results.facts import Facts
from simulator.results.latency import latency, prefill_ms, request_goodput, step_parts, throughput
from simulator.results.summary import FORMAT, MARGIN_BELOW, VERSION, live_numbers, plain
from simulator.results.sums import acceptance, by_domain, near_ties
from simulator.results.window import Window, find_window

BESIDE = "prefill"  # a phase beside the step, in its own column


def live_summary(
    live: Live, load: Settings, policy: Policy, workload: Workload, facts: Facts
) -> dict[str, Any]:
    """All keys of ``summary.json``; those that need a replay are null.

    Beside the simulator's: ``live``, ``hardware``, ``device``, ``dtype``, ``packing``,
    ``phase_ms`` (mean per step).
    """
    window = find_window(facts)
    finished = facts.requests["finish_s"]
    return {
        "format": FORMAT,
        "version": VERSION,
        **_machine(live),
        **_what(live, load, policy, workload),
        "completed": int(np.count_nonzero(~np.isnan(finished))),
        "duration": facts.duration_s,
        "realised_request_rate": realised_rate(load, facts.requests["arrival_s"]),
        **throughput(facts, window),
        **latency(facts, window),
        "ttft_note": "queue and prefill",
        "prefill_ms_total": prefill_ms(facts, window),
        "prefill_modelled_share": 0.0,
        "request_goodput": request_goodput(facts, window, load.goodput),
        **acceptance(facts, window),
        "step_ms": step_parts(facts, window),
        "phase_ms": phase_ms(facts, window),
        "by_domain": by_domain(facts, window, live.requests.domains),
        "near_ties": near_ties(facts, None, MARGIN_BELOW)
        | {
            "order_ties": int(facts.steps["order_ties"].sum()),
            "threshold": int(policy.near_threshold),
        },
        **live_numbers(facts, window, len(live.requests.domains)),
        "sampled_error_bound": None,  # of replays; live drafts are what they are
        "cost_shares": _cost_shares(facts),
        "acceptance_length_by_budget": None,
        "config_hash": _config_hash(live),
    }


def phase_ms(facts: Facts, window: Window) -> dict[str, float | None]:
    """Mean milliseconds of a step by phase, and of the prefill before it."""
    inside = window.steps(facts)
    names = (*PHASES, BESIDE)
    if not inside.any():
        return dict.fromkeys(names)
    return {name: float(facts.steps[f"{name}_s"][inside].mean() * 1e3) for name in names}


def _machine(live: Live) -> dict[str, Any]:
    target = live.pair.target
    return {
        "live": True,
        "hardware": hardware(target.device),
        "device": target.device.type,
        "dtype": type_name(target.dtype),
        "packing": live.plan.engine.packing,
        "graphs": live.plan.engine.graphs,
        "threads": torch.get_num_threads(),
        "pair": live.pair.name,
        "drafter": live.drafter.name,
    }


def _what(live: Live, load: Settings, policy: Policy, workload: Workload) -> dict[str, Any]:
    """What was run: policy, prompts, what it was fitted on and told, and load."""
    node = live.plan.config["policy"]
    return {
        "policy": policy_name(node),
        "policy_config": {k: v for k, v in node.items() if k != "name" and k[0] != "_"},
        "policy_code": {
            "target": node["_target_"],
            "sha256": own_sources(Job.__module__, node),
        },
        "policy_fit": plain(policy.describe()),
        "trace": _trace(live, workload),
        "latency": _latency(live),
        "server": asdict(load.server),
        "workload": "written live",
        "what_if": False,
        "what_if_reason": None,
        "max_concurrency": load.max_concurrency or load.max_num_seqs,
        "request_rate": "inf" if math.isinf(load.request_rate) else load.request_rate,
        "burstiness": load.burstiness,
        "seed": load.seed,
        "num_prompts": load.requests,
        "ramp": 0,
        "goodput": None if load.goodput is None else dict(load.goodput),
    }


def _trace(live: Live, workload: Workload) -> dict[str, Any]:
    """The prompts served, and the recording that policies were fitted on."""
    plan, requests = live.plan, live.requests
    recording, node = plan.recording, plan.config["trace"]
    file = plan.config["prompts"]
    present = sorted(set(requests.domain[live.sequences].tolist()))
    return {
        "recording": node["recording"],
        "content_hash": recording.content_hash,
        "recorded_temperature": recording.temperature,
        "recorded_target_is_this": recording.meta["target"]["sha256"] == live.pair.target.sha256,
        "recorded_drafter_is_this": recording.meta["drafter"]["sha256"] == live.drafter.sha256,
        "pair": live.pair.name,
        "temperature": plan.temperature,
        "prompts": "held-out corpus" if file is None else str(file),
        "prompts_hash": _prompts_hash(live),
        "split": node.get("split", "report") if file is None else None,
        "domains": [requests.domains[index] for index in present],
        "unique_prompts": len(np.unique(workload.sequence)),
    }


def _latency(live: Live) -> dict[str, Any]:
    """The clock of this run as a profile; `told` is the one that the policy was shown."""
    plan, target = live.plan, live.pair.target
    node = plan.config["latency"]
    graphs = ", CUDA graphs" if target.device.type == "cuda" else ", padded as CUDA graphs are"
    return {
        "profile": "live",
        "told": plan.cost.profile.name,
        "told_content_hash": plan.cost.profile.content_hash,
        **{f"told_{key}": node.get(key) for key in ("host", "packing", "draft_steps", "strict")},
        "hardware": hardware(target.device),
        "model": target.name,
        "num_gpus": 1 if target.device.type == "cuda" else None,
        "kind": "measured live",
        "engine_mode": f"{type_name(target.dtype)}, {plan.engine.packing} packing"
        + (graphs if plan.engine.graphs else ""),
        "source": f"this run's clock; policies were told {plan.cost.profile.name}",
    }


def _cost_shares(facts: Facts) -> dict[str, dict[str, float]]:
    """Every step is measured."""
    steps = facts.steps["step_s"]
    if not len(steps):
        return shares({}, {})
    return shares({Source.MEASURED: len(steps)}, {Source.MEASURED: float(steps.sum())})


def _prompts_hash(live: Live) -> str:
    """sha256 of what may be served: tokens, keys and limits."""
    digest = hashlib.sha256()
    requests = live.requests
    for i in live.sequences.tolist():
        digest.update(np.array([requests.seed[i], requests.max_new_tokens[i]]).tobytes())
        digest.update(np.append(requests.prompt[i], -1).tobytes())
    return digest.hexdigest()


def _config_hash(live: Live) -> str:
    """sha256 of settings and the content of what they name; times differ from run to run."""
    plan = live.plan
    parts: Mapping[str, Any] = {
        "config": {k: v for k, v in plan.config.items() if k not in ("task", "output")},
        "recording": plan.recording.content_hash,
        "prompts": _prompts_hash(live),
        "profile": repr(plan.cost.profile),
        "sources": sources(__name__, plan.config["policy"]),
        "policy_files": named_files(plan.config["policy"]),
        "models": [live.pair.target.sha256, live.drafter.sha256],
    }
    return identity(plain(parts))
