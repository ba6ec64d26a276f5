"""What a run came to: all that its summary needs, from the tables of a run or from a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from simulator.acceptance import RoundSums, near_ties
from simulator.ledger import Facts
from simulator.metrics import chunk_gaps, throughput
from simulator.request_sums import RequestSums
from simulator.samples import Samples
from simulator.step_sums import StepSums
from simulator.window import Window, find_window
from traces.recording import Recording

if TYPE_CHECKING:
    from simulator.run import Job


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
        from simulator.orders.sampled_fit import sampled_error_bound

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
