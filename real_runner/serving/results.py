"""What a live run leaves: a line for every request as it ends, and the simulator's summary,
measured instead of predicted."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np
import torch

from real_runner.engine.clock import PHASES
from real_runner.probing.profile import hardware, type_name
from real_runner.serving.live import Live
from simulator.engine.arrivals import Workload
from simulator.engine.fingerprint import identity, named_files, sources
from simulator.engine.settings import Settings
from simulator.policy import Outcome, Policy
from simulator.results.facts import Facts
from simulator.results.files import REQUESTS, STEPS, SUMMARY
from simulator.results.summary import plain, summary_of
from simulator.results.sums import Sums

OUTPUTS = "outputs.jsonl"


class OutputLog:
    """outputs.jsonl: a line per finished request, flushed, so that a run cut short keeps them.

    An earlier run's results stay in `folder` until the first request ends, and go then: the files
    there are always of one run.
    """

    def __init__(self, folder: Path, live: Live, workload: Workload) -> None:
        self.folder, self.live, self.workload = folder, live, workload
        self.rounds, self.accepted, self.nodes = np.zeros((3, len(workload)), np.int64)
        self.written = 0
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def on_step(self, outcome: Outcome) -> None:
        """Count a step's rounds."""
        self.rounds[outcome.request] += 1
        self.accepted[outcome.request] += outcome.accepted
        self.nodes[outcome.request] += outcome.width

    def on_end(self, request: int, tokens: list[int]) -> None:
        """Write the line of a request."""
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name in (SUMMARY, REQUESTS, STEPS, OUTPUTS):  # the summary, which vouches, first
                (self.folder / name).unlink(missing_ok=True)
            self._file = (self.folder / OUTPUTS).open("w", encoding="utf-8", newline="\n")
        pair, requests = self.live.arena.pair, self.live.requests
        sequence = int(self.workload.sequence[request])
        line = {
            "request": request,
            "prompt": sequence,
            "domain": requests.domains[requests.domain[sequence]],
            "text": pair.tokenizer.decode(tokens),
            "tokens": len(tokens),
            "finish_reason": "stop" if tokens[-1] in pair.target.eos_tokens else "length",
            "rounds": int(self.rounds[request]),
            "accepted": int(self.accepted[request]),
            "draft_nodes": int(self.nodes[request]),
        }
        text = json.dumps(line, ensure_ascii=False)
        self._file.write(text.encode("utf-8", "replace").decode("utf-8") + "\n")
        self._file.flush()
        self.written += 1


def live_summary(
    live: Live, load: Settings, policy: Policy, workload: Workload, facts: Facts
) -> dict[str, Any]:
    """All keys of ``summary.json``; those that need a replay are null.

    Beside the simulator's: ``live``, ``hardware``, ``device``, ``dtype``, ``packing``,
    ``phase_ms`` (mean per step, and of the prefill before it).
    """
    sums = Sums.of(facts, domains=live.requests.domains, limits=load.goodput)
    inside = sums.window.steps(facts)
    phases = dict.fromkeys((*PHASES, "prefill"))
    if inside.any():
        phases = {name: float(facts.steps[f"{name}_s"][inside].mean() * 1e3) for name in phases}
    arena, target = live.arena, live.arena.pair.target
    prompts_hash = _prompts_hash(live)
    return {
        **summary_of(sums, load, policy, live.config["policy"]),
        "live": True,
        "hardware": hardware(target.device),
        "device": target.device.type,
        "dtype": type_name(target.dtype),
        "packing": arena.settings.packing,
        "graphs": arena.settings.graphs,
        "threads": torch.get_num_threads(),
        "pair": arena.pair.name,
        "drafter": arena.drafter.name,
        "workload": "written live",
        "trace": _trace(live, workload, prompts_hash),
        "latency": _latency(live),
        "what_if": False,
        "what_if_reason": None,
        "ttft_note": "queue and prefill",
        "prefill_ms_total": sums.prefill_s * 1e3,
        "prefill_modelled_share": 0.0,
        "phase_ms": phases,
        "sampled_error_bound": None,  # of replays; live drafts are what they are
        "acceptance_length_by_budget": None,
        # Settings and the content of what they name; times differ from run to run.
        "config_hash": identity(
            plain(
                {
                    "config": {k: v for k, v in live.config.items() if k not in ("task", "output")},
                    "recording": arena.recording.content_hash,
                    "prompts": prompts_hash,
                    "profile": repr(arena.cost.profile),
                    "sources": sources(__name__, live.config["policy"]),
                    "policy_files": named_files(live.config["policy"]),
                    "models": [target.sha256, arena.drafter.sha256],
                }
            )
        ),
    }


def _prompts_hash(live: Live) -> str:
    """sha256 of what may be served: tokens, keys and limits."""
    digest = hashlib.sha256()
    requests = live.requests
    for i in live.sequences.tolist():
        digest.update(np.array([requests.seed[i], requests.max_new_tokens[i]]).tobytes())
        digest.update(np.append(requests.prompt[i], -1).tobytes())
    return digest.hexdigest()


def _trace(live: Live, workload: Workload, prompts_hash: str) -> dict[str, Any]:
    """The prompts served, and the recording that policies were fitted on."""
    arena, requests, node, file = (
        live.arena,
        live.requests,
        live.config["trace"],
        live.config["prompts"],
    )
    made = arena.recording.meta
    return {
        "recording": node["recording"],
        "content_hash": arena.recording.content_hash,
        "recorded_temperature": arena.recording.temperature,
        "recorded_target_is_this": made["target"]["sha256"] == arena.pair.target.sha256,
        "recorded_drafter_is_this": made["drafter"]["sha256"] == arena.drafter.sha256,
        "pair": arena.pair.name,
        "temperature": live.settings.temperature,
        "prompts": "held-out corpus" if file is None else str(file),
        "prompts_hash": prompts_hash,
        "split": node.get("split", "report") if file is None else None,
        "domains": [requests.domains[i] for i in np.unique(requests.domain[live.sequences])],
        "unique_prompts": len(np.unique(workload.sequence)),
    }


def _latency(live: Live) -> dict[str, Any]:
    """The clock of this run as a profile; `told` is the one that the policy was shown."""
    settings, target, told = live.arena.settings, live.arena.pair.target, live.arena.cost.profile
    node, cuda = live.config["latency"], target.device.type == "cuda"
    graphs = ", CUDA graphs" if cuda else ", padded as CUDA graphs are"
    return {
        "profile": "live",
        "told": told.name,
        "told_content_hash": told.content_hash,
        **{f"told_{key}": node.get(key) for key in ("host", "packing", "draft_steps", "strict")},
        "hardware": hardware(target.device),
        "model": target.name,
        "num_gpus": 1 if cuda else None,
        "kind": "measured live",
        "engine_mode": f"{type_name(target.dtype)}, {settings.packing} packing"
        + (graphs if settings.graphs else ""),
        "source": f"this run's clock; policies were told {told.name}",
    }
