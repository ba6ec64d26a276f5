"""One run: load, fit, simulate, summarise, write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cost import StepCost
from simulator.inputs import choose_sequences, load_cost, load_recording, typical_context
from simulator.ledger import Facts, texts_of
from simulator.load_policy import engine_hash, files_hash, make_policy, source_hash
from simulator.orders.specs import Order
from simulator.orders.table import OrderTable
from simulator.policy import FITTING, Lab, Policy
from simulator.results import is_complete, write_results
from simulator.settings import OF_TASKS, Settings, read_settings
from simulator.summary import summarise
from simulator.workload import make_workload, start
from traces.recording import Recording


@dataclass(frozen=True, slots=True)
class Job:
    """Everything one run needs, checked; `prepare` fits the policy."""

    config: Mapping[str, Any]
    settings: Settings
    recording: Recording
    sequences: np.ndarray  # of the recording, to be served
    cost: StepCost
    policy: Policy
    tables: Callable[[Order], OrderTable]  # asked every step

    @property
    def config_hash(self) -> str:
        """sha256 of what determines the results: settings and the content of what they name."""
        names = (*OF_TASKS, "task")
        parts = {
            "config": {key: value for key, value in self.config.items() if key not in names},
            "recording": self.recording.content_hash,
            "profile": repr(self.cost.profile),
            "policy": source_hash(self.policy),
            "policy_files": files_hash(self.config["policy"]),
            "engine": engine_hash(),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def load(cfg: Mapping[str, Any]) -> Job:
    """Read and check what a composed configuration names; writes nothing.

    Raises:
        InputError: the first bad key, value or file.
    """
    settings = read_settings(cfg)
    cost = load_cost(cfg["latency"])
    policy = make_policy(cfg["policy"])
    recording = load_recording(cfg["trace"])
    sequences = choose_sequences(cfg["trace"], recording)
    if cost.strict:  # what lies outside the tables is refused before a sweep begins
        cost.prefill_s(int(recording["prompt_len"][sequences].max()))
        one = np.ones(1, np.int64)
        cost.step(one, one * typical_context(recording), drafted=False, tree=False)
    return Job(cfg, settings, recording, sequences, cost, policy, tables_of(recording))


def tables_of(recording: Recording) -> Callable[[Order], OrderTable]:
    """The orders of a recording by their spec, each looked up once."""
    from simulator.orders import order_table

    return cache(lambda spec: order_table(spec, recording))


def run_job(
    job: Job, folder: Path, on_finish: Callable[[int], None] | None = None
) -> dict[str, Any] | None:
    """Run a prepared job and write into `folder`; None where the very same run is there already."""
    if is_complete(folder, job.config_hash):
        return None
    facts = simulate(job, on_finish)
    summary = summarise(job, facts)
    write_results(folder, summary, facts, job.recording.domains)
    return summary


def prepare(job: Job) -> Job:
    """Fit the job's policy, once; returns the job.

    Raises:
        InputError: what the policy refuses about the recording or the profile.
    """
    fit(job.policy, job.recording, job.cost, job.settings.capacity, job.tables)
    if job.policy.order is not None:
        job.tables(job.policy.order)
    return job


def fit(policy: Policy, recording: Recording, cost: StepCost, capacity: int, tables) -> None:
    """Let the policy fit on the recording's calibration and tuning splits, and on nothing else.

    tables: order tables of the recording by spec, see `tables_of`.
    """
    policy.prepare(
        Lab(
            recording=recording,
            cost=cost,
            max_batch=capacity,
            context=typical_context(recording),
            table=lambda spec: _fitting_table(tables, spec, recording),
        )
    )


@lru_cache(maxsize=4)  # of one recording's size each; many jobs ask for the same ones in turn
def _fitting_table(tables, spec: Order, recording: Recording) -> OrderTable:
    anchors = [recording.anchors_of(split) for split in FITTING]
    return tables(spec).only(np.concatenate(anchors))


def simulate(job: Job, on_finish: Callable[[int], None] | None = None) -> Facts:
    """Serve every request with the prepared policy.

    Args:
        on_finish: called with the number of finished requests.
    """
    import simpy

    from simulator.server import Server

    env, capacity = simpy.Environment(), job.settings.capacity
    workload = make_workload(job.settings, job.recording, job.sequences)
    server = Server(
        env, job.policy, job.recording, job.cost, workload, capacity, job.tables, on_finish
    )
    start(workload, env, server)
    env.run(env.process(server.serve()))
    return server.ledger.facts(texts_of(job.recording, workload))
