"""One pair, one recording of it and one profile: every policy replayed and served on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import simpy

from real_runner.engine.engine import Engine, Settings, draft_head
from real_runner.engine.models import LiveDrafter, LivePair
from real_runner.engine.residual import make_verifier
from real_runner.engine.walk import Verifier
from real_runner.models.loading import chosen_drafter
from real_runner.recording.record import RecordPlan, corpus_prompts, record_in_memory
from real_runner.serving.prompts import Requests
from real_runner.serving.server import LiveServer, OnEnd, OnStep
from real_runner.settings import CORPUS_LICENSE, LiveSettings
from simulator.cost import StepCost
from simulator.engine.arrivals import Workload
from simulator.engine.fleet import Fleet
from simulator.engine.run import fit, tables_of
from simulator.orders import BestFirstOrder, DraftHead, OrderTable
from simulator.orders.specs import MAX_NODES
from simulator.policies.loading import make_policy, policy_name
from simulator.policy import Policy
from simulator.results.facts import Facts
from simulator.results.ledger import Ledger
from traces.common.errors import InputError
from traces.common.settings import Section
from traces.recordings.recording import Recording


@dataclass(frozen=True, slots=True)
class Served:
    """A live run: its facts, and the tokens of every request (recorded ones before them)."""

    facts: Facts
    outputs: list[list[int]]
    ordered: np.ndarray  # (steps,) nodes put in order
    trees: np.ndarray  # (steps,) bool: trees were verified
    fed: bool  # plain steps kept states for a drafter


@dataclass(frozen=True, eq=False)
class Arena:
    """Replays and serves the same workloads; a policy is fitted the same way for both."""

    pair: LivePair
    drafter: LiveDrafter
    recording: Recording
    cost: StepCost
    verifier: Verifier
    settings: Settings = field(default_factory=Settings)
    engine: type[Engine] = Engine

    @cached_property
    def tables(self):
        """Order tables of the recording."""
        return tables_of(self.recording)

    @cached_property
    def head(self) -> DraftHead:
        """Shared by the engines of every run."""
        return draft_head(self.pair.target, self.drafter)

    @cached_property
    def requests(self) -> Requests:
        """The recording's texts, to be written again."""
        recording = self.recording
        count = recording.num_sequences
        seeds = recording.arrays.get("seq_request_seed", np.arange(count))
        cap = recording.meta["generation"]["max_new_tokens"]
        return Requests(
            prompt=[recording.prompt_tokens(i).astype(np.int64) for i in range(count)],
            seed=seeds.astype(np.int64),
            max_new_tokens=np.full(count, cap),
            domain=recording["domain"].astype(np.int64),
            domains=recording.domains,
            recorded=[recording.committed_tokens(i) for i in range(count)],
            anchor_offset=recording.anchor_offset[:-1],
        )

    def cut_tables(self, node: Mapping[str, Any], capacity: int) -> tuple[OrderTable, ...]:
        """A best-first order's table with one node more, which shows how close a cut was."""
        order = self.fitted(node, capacity).order
        if not isinstance(order, BestFirstOrder) or order.nodes == MAX_NODES:
            return ()
        return (self.tables(replace(order, nodes=order.nodes + 1)),)

    def fitted(self, node: Mapping[str, Any], capacity: int) -> Policy:
        """A fresh policy, fitted on the recording's calibration and tuning splits."""
        policy = make_policy(node)
        try:
            fit(policy, self.recording, self.cost, capacity, self.tables)
        except InputError as error:
            raise InputError(f"policy {policy_name(node)} on {self.pair.name}: {error}") from None
        return policy

    def replay(
        self,
        node: Mapping[str, Any],
        workload: Workload,
        capacity: int,
        price: StepCost | None = None,
    ) -> Facts:
        """What the simulator says of a workload over the recording.

        price: what steps take, where that is not what the policy is told.
        """
        workload = workload.replaying(self.recording)
        ledger = Ledger(workload)
        fleet = Fleet(
            simpy.Environment(),
            self.fitted(node, capacity),
            self.recording,
            price or self.cost,
            workload,
            capacity,
            self.tables,
            ledger,
            told=self.cost,
        )
        fleet.run()
        return ledger.facts()

    def server(
        self,
        policy: Policy,
        workload: Workload,
        capacity: int,
        requests: Requests | None = None,
        on_end: OnEnd | None = None,
        on_step: OnStep | None = None,
    ) -> LiveServer:
        """A server of the workload with an engine of its own; requests: the recording's if None."""
        requests = requests or self.requests
        drafter = self.drafter if policy.drafts else None
        engine = self.engine(
            self.pair.target,
            drafter,
            min(capacity, len(workload)),
            requests.longest,
            self.verifier,
            self.settings,
            None if drafter is None else self.head,
        )
        return LiveServer(engine, policy, self.cost, workload, requests, capacity, on_end, on_step)

    def serve(
        self,
        node: Mapping[str, Any],
        workload: Workload,
        capacity: int,
        requests: Requests | None = None,
    ) -> Served:
        """The same workload live."""
        policy = self.fitted(node, capacity)
        server = self.server(policy, workload, capacity, requests)
        facts = server.run()
        ordered, trees = np.array(server.step_orders or [(0, False)]).T
        return Served(facts, server.outputs, ordered, trees.astype(bool), policy.drafts)


def plain_workload(sequences: np.ndarray, clients: int) -> Workload:
    """Every sequence once and from its first token, in a closed loop of `clients`."""
    none = np.zeros(len(sequences), np.int64)
    return Workload(sequences, none, none.astype(bool), None, min(clients, len(sequences)))


def recorded_arena(
    config: Mapping[str, Any],
    live: LiveSettings,
    asked: Section,
    pair: LivePair,
    prompts: int,
    cost: StepCost | None = None,
    tokens: int | None = None,
    stored: str | None = None,
) -> Arena:
    """An arena over the small pair's corpus, recorded now: rounding could move near ties otherwise.

    Args:
        asked: of the task, with `domains` and `seed`. prompts: of each domain.
        cost: None where it is yet to be measured. tokens: of a text, by default `max_new_tokens`.
        stored: type of scores, by default the live one.
    """
    settings = Settings(packing=live.packing, graphs=live.graphs)
    plan = RecordPlan(
        domains=asked.domains,
        max_new_tokens=tokens or live.max_new_tokens,
        temperatures=(live.temperature,),
        shard_mb=1,
        text_license=CORPUS_LICENSE,
        pool=settings.pool,
        seed=asked.seed,
        name="live",
        stored=stored or ("float32" if live.dtype == "bfloat16" else live.dtype),
    )
    drafter = chosen_drafter(pair, config)
    texts = corpus_prompts(pair, plan.domains, prompts, plan.seed)
    recording = record_in_memory(pair, drafter, plan, texts, live.temperature)
    return Arena(pair, drafter, recording, cost, make_verifier(live.temperature), settings)
