"""One closed loop of a policy, for tables that compare policies on the same texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.fair_load import base_of, fair_load
from simulator.inputs import choose_sequences, load_cost, load_recording
from simulator.run import Job, prepare, simulate
from simulator.settings import read_settings
from simulator.summary import summarise
from simulator.tournament.options import read_option
from simulator.tournament.play import shared_tables


def policy(name: str, **settings: Any) -> dict[str, Any]:
    """A node of conf/policy, changed."""
    return {**read_option("policy", name, "published.table"), **settings}


def played(cfg: Mapping[str, Any], node: Mapping[str, Any], concurrency: int) -> dict[str, Any]:
    """The summary of a closed loop that serves every prompt of the trace's split.

    Args:
        cfg: its trace, latency profile, server, seed and num_prompts are taken.
        node: the policy's.

    Raises:
        InputError: what the run refuses; no closed loop.
    """
    from simulator.load_policy import make_policy

    settings = read_settings(cfg)
    recording, cost = load_recording(cfg["trace"]), load_cost(cfg["latency"])
    sequences = choose_sequences(cfg["trace"], recording)
    base = base_of(settings, "published")
    load = fair_load(base, concurrency, len(sequences), settings.seed, settings.num_prompts)
    job = Job(
        config={**cfg, "policy": node},
        settings=load,
        recording=recording,
        sequences=sequences,
        cost=cost,
        policy=make_policy(node),
        tables=shared_tables(recording),
    )
    return summarise(job, simulate(prepare(job)))


def setting(cfg: Mapping[str, Any]) -> str:
    """Which recording and profile, for a title."""
    recording, profile = load_recording(cfg["trace"]), load_cost(cfg["latency"]).profile.name
    heat = f"T = {recording.temperature:g}"
    return f"{recording.meta['pair']}, {recording.depths} depths, {heat}, profile {profile}"
