"""Servers that note what they do, event by event, and what they hold, for tests of their laws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from unittest.mock import patch

import simpy

from simulator.cost import Source, StepCost, StepTime
from simulator.engine import fleet
from simulator.engine.arrivals import Workload, make_workload
from simulator.engine.run import Job
from simulator.engine.server import Server
from simulator.orders.table import OrderTable
from simulator.policy import Load
from simulator.results.facts import Facts
from simulator.results.ledger import Ledger
from tests.serving import STEP_S, ConstantCost


class Came(NamedTuple):
    """A request is sent here."""

    request: int
    context: int  # tokens to read
    behind: int  # outputs behind its root
    time_s: float


class Admitted(NamedTuple):
    request: int
    context: int
    time_s: float


class Reading(NamedTuple):
    """A pass begins that computes prompts alone."""

    time_s: float


class Read(NamedTuple):
    """A pass that computed chunks of prompts has ended."""

    chunks: list[tuple[int, int, int]]  # request, first token, tokens
    time_s: float


class Began(NamedTuple):
    """A prompt is read: the request runs, or is over."""

    request: int
    time_s: float


class Pushed(NamedTuple):
    request: int


class Stepping(NamedTuple):
    """A step begins."""

    load: Load
    table: OrderTable | None
    anchor: list[int]
    wanted: list[int]  # nodes, as the policy chose
    width: list[int]  # as there is memory for
    held: int  # KV blocks
    asked: int  # place among the cost's answers


class Committed(NamedTuple):
    """The step has ended."""

    accepted: list[int]
    committed: list[int]
    time_s: float


class Held(NamedTuple):
    """KV blocks between steps."""

    blocks: int


class WatchedServer(Server):
    """Notes every event in `events`; nothing else differs."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.events: list[tuple] = []

    def submit(self, column, size):
        self.events.append(Came(column[0], column[2], size, self.env.now))
        super().submit(column, size)

    def _next_entry(self):
        entry = super()._next_entry()
        if entry is not None:
            self.events.append(Admitted(entry.column[0], entry.context, self.env.now))
        return entry

    def _begin(self, entry):
        self.events.append(Began(entry.column[0], self.env.now))
        return super()._begin(entry)

    def _read_alone(self):
        self.events.append(Reading(self.env.now))
        return super()._read_alone()

    def _finish_reading(self, taken):
        chunks = [(one.column[0], one.read, tokens) for one, tokens in taken]
        self.events.append(Read(chunks, self.env.now))
        super()._finish_reading(taken)

    def _push_back(self, entry):
        self.events.append(Pushed(entry.column[0]))
        super()._push_back(entry)

    def _decide(self, load, anchor):
        table, width = super()._decide(load, anchor)
        self._wanted = width.tolist()
        return table, width

    def _price(self, load, table, anchor, width, taken):
        widths, asked = (self._wanted, width.tolist()), len(self.cost.asked)
        held = self._kv.held
        self.events.append(Stepping(load, table, anchor.tolist(), *widths, held, asked))
        return super()._price(load, table, anchor, width, taken)

    def _commit(self, *args):
        outcome = super()._commit(*args)
        accepted, committed = outcome.accepted.tolist(), outcome.committed.tolist()
        self.events.append(Committed(accepted, committed, self.env.now))
        return outcome

    def _count_kv(self):
        super()._count_kv()
        self.events.append(Held(self._kv.held))


class UnevenCost(ConstantCost):
    """Steps of 1 to 3 units by their packed tokens: binary fractions, so that sums are exact."""

    def step(self, packed, context, *, drafted, tree, **counts) -> StepTime:
        time = super().step(packed, context, drafted=drafted, tree=tree, **counts)
        units = 1 + int(packed.sum()) % 3
        return StepTime(time.draft_s, units * STEP_S, 0.0, Source.MEASURED, time.chunk_s)


@dataclass(frozen=True, slots=True)
class Run:
    """A run and everything that was noted of it."""

    job: Job
    workload: Workload
    facts: Facts
    servers: list[WatchedServer]
    cost: ConstantCost


def watched(job: Job, told: StepCost) -> Run:
    """Serve the job's requests, as `simulator.engine.run.simulate` without its shortcuts.

    The same cost object must not be used twice. told: the cost that policies are shown.
    """
    work = make_workload(job.settings, job.recording, job.sequences, job.lengths)
    ledger, env = Ledger(work), simpy.Environment()
    with patch.object(fleet, "Server", WatchedServer):
        served = fleet.Fleet(
            env,
            job.policy,
            job.recording,
            job.cost,
            work,
            job.settings.capacity,
            job.tables,
            ledger,
            job.settings.server,
            told=told,
            following=job.following,
        )
    served.run()
    facts = ledger.facts()
    return Run(job, work, facts, served.servers, job.cost)
