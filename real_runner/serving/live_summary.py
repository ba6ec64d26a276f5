"""The summary of a live run: the simulator's keys, measured instead of predicted."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch

from real_runner.engine.clock import PHASES
from real_runner.probing.header import hardware, type_name
from real_runner.serving.live import Live
from simulator.engine.arrivals import Workload
from simulator.engine.fingerprint import identity, named_files, sources
from simulator.engine.settings import Settings
from simulator.policy import Policy
from simulator.results.facts import Facts
from simulator.results.summary import plain, summary_of
from simulator.results.sums import Sums
from simulator.results.window import Window

BESIDE = "prefill"  # a phase beside the step, in its own column


def live_summary(
    live: Live, load: Settings, policy: Policy, workload: Workload, facts: Facts
) -> dict[str, Any]:
    """All keys of ``summary.json``; those that need a replay are null.

    Beside the simulator's: ``live``, ``hardware``, ``device``, ``dtype``, ``packing``,
    ``phase_ms`` (mean per step).
    """
    sums = Sums.of(facts, domains=live.requests.domains, limits=load.goodput)
    return {
        **summary_of(sums, load, policy, live.plan.config["policy"]),
        **_machine(live),
        "workload": "written live",
        "trace": _trace(live, workload),
        "latency": _latency(live),
        "what_if": False,
        "what_if_reason": None,
        "ttft_note": "queue and prefill",
        "prefill_ms_total": sums.prefill_s * 1e3,
        "prefill_modelled_share": 0.0,
        "phase_ms": phase_ms(facts, sums.window),
        "sampled_error_bound": None,  # of replays; live drafts are what they are
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
    parts = {
        "config": {k: v for k, v in plan.config.items() if k not in ("task", "output")},
        "recording": plan.recording.content_hash,
        "prompts": _prompts_hash(live),
        "profile": repr(plan.cost.profile),
        "sources": sources(__name__, plan.config["policy"]),
        "policy_files": named_files(plan.config["policy"]),
        "models": [live.pair.target.sha256, live.drafter.sha256],
    }
    return identity(plain(parts))
