"""One run: load, fit, simulate, summarise, write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cost import StepCost
from simulator.engine.arrivals import (
    LazyWorkload,
    arrival_times,
    make_workload,
    shuffled_sequences,
)
from simulator.engine.compiled import eligible, pays
from simulator.engine.fingerprint import identity, named_files, sources
from simulator.engine.inputs import choose_sequences, load_cost, load_recording, typical_context
from simulator.engine.settings import GROUPS, OPTIONAL, SCALARS, Settings, read_settings
from simulator.engine.traffic_file import Lengths
from simulator.orders.specs import Order
from simulator.orders.table import OrderTable
from simulator.policies.loading import check_verbs, make_policy, named_refusal
from simulator.policy import FITTING, Lab, Policy
from simulator.results.facts import Facts
from simulator.results.files import RunFiles
from simulator.results.ledger import Ledger
from simulator.results.quantiles import EXACT
from simulator.results.summary import finish, sums_for
from traces.common.errors import InputError
from traces.recordings.part import part_of
from traces.recordings.recording import Recording

STREAM_FROM = 100_000  # requests of a run; the tables of longer ones are not held


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
    lengths: Lengths | None = None  # of a workload file

    @property
    def context(self) -> int:
        """KV tokens half-way through a request, as policies are told when they are fitted."""
        prompt = self.settings.workload.prompt_tokens
        if self.lengths is not None:
            return self.lengths.typical_context
        return typical_context(self.recording, prompt)

    @property
    def served(self) -> str | dict[str, Any]:
        """For the summary: what requests are."""
        prompt = self.settings.workload.prompt_tokens
        if self.lengths is not None:
            return {"arrivals": self.settings.workload.arrivals, **self.lengths.describe()}
        return "recorded texts" if prompt is None else f"recorded texts, prompts of {prompt} tokens"

    @property
    def following(self) -> np.ndarray | None:
        """(S,) in which sequence a text goes on where its own ends."""
        if self.lengths is None:
            return None
        return self.lengths.following(shuffled_sequences(self.settings.seed, self.sequences))

    @property
    def config_hash(self) -> str:
        """sha256 of what determines the results: settings and the content of what they name."""
        return identity_of(self.config)


def identity_of(cfg: Mapping[str, Any], entry: str = __name__) -> str:
    """sha256 of what determines the results of a settled configuration; nothing is fitted.

    entry: a module that makes something of the run: its sources count as well.

    Raises:
        InputError: a recording or a profile that is not there.
    """
    names = {*GROUPS, *OPTIONAL, *SCALARS} - {"task"}
    parts = {
        "config": {key: value for key, value in cfg.items() if key in names},
        "recording": load_recording(cfg["trace"]).content_hash,
        "profile": load_cost(cfg["latency"]).profile.content_hash,
        "sources": sources(entry, cfg["policy"]),
        "files": named_files([cfg["policy"], cfg.get("workload") or {}]),
    }
    return identity(parts)


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
    settings, lengths = _with_lengths(settings, recording, sequences)
    settings = settings.with_(server=settings.server.with_memory(cost.profile.header))
    if cost.strict:  # what lies outside the tables is refused before a sweep begins
        cost.prefill_s(int(recording["prompt_len"][sequences].max()))
        one = np.ones(1, np.int64)
        cost.step(one, one * typical_context(recording), drafted=False, tree=False)
    tables = tables_of(recording)
    return Job(cfg, settings, recording, sequences, cost, policy, tables, lengths)


def _with_lengths(
    settings: Settings, recording: Recording, sequences: np.ndarray
) -> tuple[Settings, Lengths | None]:
    """The rows of the workload's file, and settings that ask for no more of them than there are."""
    wanted = settings.workload
    if wanted.recorded:
        return settings, None
    every = wanted.arrivals == "file" and settings.num_prompts is None
    limit = None if every else settings.requests
    lengths = Lengths(wanted, recording, sequences, limit)
    if settings.num_prompts is not None and lengths.count < settings.num_prompts:
        raise InputError(
            f"num_prompts is {settings.num_prompts}; accepted with {wanted.path}: up to "
            f"{lengths.count}"
        )
    return settings.with_(num_prompts=lengths.count), lengths


def tables_of(recording: Recording) -> Callable[[Order], OrderTable]:
    """The orders of a recording by their spec, each looked up once."""
    from simulator.orders import order_table

    return cache(lambda spec: order_table(spec, recording))


def run_job(
    job: Job, folder: Path, on_finish: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Run a prepared job, write into `folder`, and return the summary."""
    long = job.settings.requests > STREAM_FROM
    make = LazyWorkload if long else make_workload
    workload = make(job.settings, job.recording, job.sequences, job.lengths)
    sums = sums_for(job, EXACT if long else None)
    with RunFiles(folder) as files:
        ledger = Ledger(workload, files, sums, hold=not long)
        near = _serve(job, ledger, on_finish)
        notes = job.policy.notes()
        more = {"workload": job.served} | ({"policy_notes": notes} if notes else {})
        return finish(job, ledger, near_threshold=near, more=more)


def prepare(job: Job) -> Job:
    """Fit the job's policy, once; returns the job.

    Raises:
        InputError: what the policy refuses about the recording or the profile; it names the
            setting, or the policy.
    """
    parts = (job.policy, job.recording, job.cost, job.settings.capacity, job.tables)
    try:
        fit(*parts, job.context)
        rules = (job.policy.rule(batch) for batch in range(1, job.settings.capacity + 1))
        orders = dict.fromkeys([job.policy.order, *(rule and rule.order for rule in rules)])
        for order in orders:  # looked up once, before a sweep shares itself out
            if order is not None:
                job.tables(order)
    except InputError as error:
        raise named_refusal(error, job.config.get("policy") or {}) from error
    return job


def fit(
    policy: Policy,
    recording: Recording,
    cost: StepCost,
    capacity: int,
    tables: Callable[[Order], OrderTable],
    context: int | None = None,
) -> None:
    """Let the policy fit on the recording's calibration and tuning splits, and on nothing else.

    tables: order tables of the recording by spec, see `tables_of`. context: KV tokens half-way
    through a request; None: of the recorded ones.
    """
    policy.prepare(
        Lab(
            recording=_fitting_part(recording),
            cost=deepcopy(cost),
            max_batch=capacity,
            context=typical_context(recording) if context is None else context,
            table=lambda spec: _fitting_table(tables, spec, recording),
        )
    )
    check_verbs(policy)


@lru_cache(maxsize=4)
def _fitting_part(recording: Recording) -> Recording:
    return part_of(recording, FITTING)


@lru_cache(maxsize=4)  # of one recording's size each; many jobs ask for the same ones in turn
def _fitting_table(tables, spec: Order, recording: Recording) -> OrderTable:
    anchors = np.concatenate([recording.anchors_of(split) for split in FITTING])
    return tables(spec).only(np.sort(anchors))


def simulate(job: Job) -> Facts:
    """Serve every request with the prepared policy.

    Raises:
        InvariantError: the run contradicts itself.
    """
    workload = make_workload(job.settings, job.recording, job.sequences, job.lengths)
    ledger = Ledger(workload)
    _serve(job, ledger)
    facts = ledger.facts()
    ledger.accounts.check(job.settings.server.kv_blocks)
    return facts


def _serve(job: Job, ledger: Ledger, on_finish: Callable[[int], None] | None = None) -> int:
    """Serve the ledger's workload; returns how many decisions were near a threshold."""
    workload, settings = ledger.workload, job.settings
    parts = (job.policy, job.recording, job.cost, workload, settings.capacity, job.tables, ledger)
    if eligible(settings, workload, job.policy, job.cost) and pays(
        job.policy, workload, job.recording, settings.capacity
    ):
        from simulator.engine.compiled.server import FastServer

        FastServer(*parts, on_finish, arrival_times(settings, workload)).run()
        return job.policy.near_threshold
    import simpy

    from simulator.engine.fleet import Fleet

    more = {"told": deepcopy(job.cost), "following": job.following}
    fleet = Fleet(simpy.Environment(), *parts, settings.server, on_finish, **more)
    fleet.run()
    return fleet.near_threshold
