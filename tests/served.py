"""Runs whose servers note what they do, event by event, and what must hold of each.

`Walk` replays the events of a replica by plain bookkeeping: whatever may come next is worked out
from the settings alone, in Python's numbers and lists. `check_all` looks at the tables besides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import simpy

from simulator.cost import Source, StepCost, StepTime
from simulator.engine import fleet
from simulator.engine.arrivals import Workload, make_workload, shuffled_sequences
from simulator.engine.run import Job
from simulator.engine.server import Server
from simulator.orders.table import OrderTable
from simulator.policy import Load
from simulator.results.facts import Facts
from simulator.results.ledger import Ledger
from tests.serving import STEP_S, ConstantCost, accounts_of


class WatchedServer(Server):
    """Notes every event in `events`, a verb of `Walk` and what it is told; nothing else differs."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.events: list[tuple] = []

    def submit(self, column, size):
        self.events.append(("came", column[0], column[2], size))
        super().submit(column, size)

    def _next_entry(self):
        entry = super()._next_entry()
        if entry is not None:
            self.events.append(("admitted", entry.column[0], entry.context, self.env.now))
        return entry

    def _begin(self, entry):
        self.events.append(("began", entry.column[0], self.env.now))
        return super()._begin(entry)

    def _read_alone(self):
        self.events.append(("alone", self.env.now))
        return super()._read_alone()

    def _finish_reading(self, taken):
        chunks = [(one.column[0], one.read, tokens) for one, tokens in taken]
        self.events.append(("read", chunks, self.env.now))
        super()._finish_reading(taken)

    def _push_back(self, entry):
        self.events.append(("push", entry.column[0]))
        super()._push_back(entry)

    def _decide(self, load, anchor):
        table, width = super()._decide(load, anchor)
        self._wanted = width.tolist()
        return table, width

    def _price(self, load, table, anchor, width, taken):
        asked = len(self.cost.asked)
        time = super()._price(load, table, anchor, width, taken)
        widths = self._wanted, width.tolist()
        about = load, table, anchor.tolist(), *widths, self._kv.held, self.cost.asked[asked]
        self.events.append(("step", Stepping(*about)))
        return time

    def _commit(self, *args):
        outcome = super()._commit(*args)
        counts = outcome.accepted.tolist(), outcome.committed.tolist()
        self.events.append(("commit", *counts, self.env.now))
        return outcome

    def _count_kv(self):
        super()._count_kv()
        self.events.append(("hold", self._kv.held))


@dataclass(frozen=True, slots=True)
class Stepping:
    """A step begins."""

    load: Load
    table: OrderTable | None
    anchor: list[int]
    wanted: list[int]  # nodes, as the policy chose
    width: list[int]  # as there is memory for
    held: int  # KV blocks
    asked: dict  # what the cost was


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


class Walk:
    """Replays the events of one replica; every verb is one event and asserts what must hold."""

    def __init__(self, run: Run, server: WatchedServer) -> None:
        self.rules, self.capacity = run.job.settings.server, run.job.settings.capacity
        self.run, self.facts, self.total = (
            run,
            run.facts.requests,
            run.job.settings.server.kv_blocks,
        )
        self.waiting: list[int] = []  # head first
        self.reading: dict[int, int] = {}  # tokens read, in the order of admission
        self.running: list[int] = []  # so too
        self.pushed: set[int] = set()  # that wait to come in again
        self.begun: set[int] = set()  # output 0 is out
        self.context: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.size: dict[int, int] = {}  # outputs behind the first root
        self.deferred: dict[int, int] = {}  # committed tokens that the drafter has not read
        self.beside: int | None = None  # tokens that the step's budget leaves
        self.stepping: Stepping | None = None
        self.begin_s = 0.0  # of the last prompt, or of the pass that reads prompts alone
        self.read_tokens = self.pushes = 0
        self.just_pushed = False  # since the last step
        self.drafts = server.policy.drafts
        generation = run.job.recording.meta["generation"]
        self.longest = run.workload.longest_output or generation["max_new_tokens"]
        for verb, *told in server.events:
            getattr(self, verb)(*told)
        assert [self.waiting, self.reading, self.running, self.pushed] == [[], {}, [], set()]

    def blocks(self, tokens: int) -> int:
        return math.ceil(tokens / self.rules.kv_block)

    def held(self, running: int) -> int:
        """Blocks of prompts that are read, their roots', and `running` ones."""
        return running + sum(self.blocks(self.context[one] + 1) for one in self.reading)

    def committed_blocks(self) -> int:
        return self.held(sum(self.blocks(self.context[one]) for one in self.running))

    def needed(self) -> int:
        """Blocks once everybody's root is verified."""
        return self.held(sum(self.blocks(self.context[one] + 1) for one in self.running))

    def room(self, request: int) -> bool:
        """A free slot, and memory beside the next roots of those inside and the watermark."""
        inside = len(self.reading) + len(self.running)
        if inside >= self.capacity or self.total is None:
            return inside < self.capacity
        spare = self.total - self.needed() - self.blocks(self.context[request] + 1)
        return spare >= (math.ceil(self.rules.watermark * self.total) if inside else 0)

    # ---------------------------------------------------------------- queue and admission

    def came(self, request: int, context: int, behind: int) -> None:
        self.context[request] = context
        self.left[request] = self.size[request] = behind
        assert context == self.run.workload.context[request]
        never = self.total is not None and self.blocks(context + behind) > self.total
        assert self.facts["rejected"][request] == never
        if not never:
            self.waiting.append(request)

    def next(self) -> int:
        """Who was pushed out goes first; then first come, or the shortest, first served."""
        if self.rules.scheduling == "fcfs" or self.waiting[0] in self.pushed:
            return self.waiting[0]
        return min(self.waiting, key=lambda request: self.size[request])

    def admitted(self, request: int, context: int, time_s: float) -> None:
        assert request == self.next()
        assert context == self.context[request]
        assert self.room(request)
        if request not in self.pushed:
            assert self.facts["admitted_s"][request] == time_s
        self.waiting.remove(request)
        self.pushed.discard(request)
        self.reading[request] = 0
        self.begin_s = time_s

    def push(self, request: int) -> None:
        """The last prompt that is read, else the last that runs, goes to the queue's head."""
        assert self.total is not None
        assert self.needed() > self.total
        last = self.reading.popitem()[0] if self.reading else self.running.pop()
        assert request == last
        assert self.running  # one that is alone always has room
        self.waiting.insert(0, last)
        self.pushed.add(last)
        self.pushes += 1
        self.just_pushed = True

    # ---------------------------------------------------------------- prompts

    def chunks(self, budget: int | None) -> list[tuple[int, int, int]]:
        """First come, first read, while tokens last."""
        chunks = []
        for one, read in self.reading.items():
            tokens = self.context[one] - read
            tokens = tokens if budget is None else min(tokens, budget)
            if tokens <= 0:
                break
            chunks.append((one, read, tokens))
            budget = None if budget is None else budget - tokens
        return chunks

    def alone(self, time_s: float) -> None:
        self.begin_s = time_s

    def prompts_s(self, tokens: int) -> float:
        return tokens * self.run.cost.prompt_token_s

    def read(self, chunks: list[tuple[int, int, int]], time_s: float) -> None:
        """A pass that computed chunks of prompts has ended: request, first token, tokens."""
        if self.stepping is None:  # a pass of its own
            assert self.reading
            assert not (self.running and self.rules.mixed)
            assert chunks == self.chunks(self.rules.max_num_batched_tokens)
            tokens = sum(tokens for _, _, tokens in chunks)
            assert time_s == self.begin_s + self.prompts_s(tokens)
        else:
            assert chunks == (self.chunks(self.beside) if self.rules.mixed else [])
        self.stepping = None
        for one, _, tokens in chunks:
            self.reading[one] += tokens
            self.read_tokens += tokens

    def began(self, request: int, time_s: float) -> None:
        assert request == next(iter(self.reading))
        read = self.reading.pop(request)
        if self.rules.prefill == "whole" and not self.rules.mixed:
            self.read_tokens += self.context[request]  # at once, from admission
            assert time_s == self.begin_s + self.prompts_s(self.context[request])
            read += self.context[request]
        assert read == self.context[request]
        if request not in self.begun:
            assert self.facts["first_token_s"][request] == time_s
        self.begun.add(request)
        self.deferred[request] = 0
        if self.left[request]:
            self.running.append(request)
        else:
            assert self.facts["finish_s"][request] == time_s

    # ---------------------------------------------------------------- steps

    def step(self, step: Stepping) -> None:
        load, self.stepping = step.load, step
        assert load.request.tolist() == self.running
        assert 1 <= load.batch == len(self.running) <= self.capacity
        assert load.context.tolist() == [self.context[one] for one in self.running]
        prompt = self.run.workload.prompt_tokens
        emitted = [1 + self.context[one] - int(prompt[one]) for one in self.running]
        assert load.remaining.tolist() == [self.longest - count for count in emitted]
        assert load.queued == len(self.waiting) + len(self.reading)
        if self.waiting and not self.just_pushed:  # nobody waits where there is room
            assert not self.room(self.next())
        self.just_pushed = False
        assert self.rules.mixed or not self.reading  # prompts first
        self.check_step_memory(step)
        self.check_asked(step)

    def check_step_memory(self, step: Stepping) -> None:
        if self.total is None:
            assert step.width == step.wanted
            return
        nested = step.table is None or step.table.nested
        for most in range(max(step.wanted), -1, -1):  # the largest trees are cut, to one size
            width = [min(one, most) if nested else one * (one <= most) for one in step.wanted]
            rows = zip(step.load.context.tolist(), width, strict=True)
            held = self.held(sum(self.blocks(context + 1 + nodes) for context, nodes in rows))
            if held <= self.total:
                break
        assert step.width == width
        assert step.held == held <= self.total

    def check_asked(self, step: Stepping) -> None:
        """What the cost was asked for, and the token budget."""
        asked, table = step.asked, step.table
        assert asked["packed"].tolist() == [width + 1 for width in step.width]
        assert asked["context"].tolist() == step.load.context.tolist()
        assert asked["drafted"] == (table is not None)
        assert asked["fed"] == self.drafts
        owed = sum(self.deferred[one] for one in self.running)
        assert asked["deferred"] == (owed if self.drafts else 0)
        size = [0] * len(step.width) if table is None else table.size[step.anchor].tolist()
        assert asked["ordered"] == sum(size)
        assert all(width <= most for width, most in zip(step.width, size, strict=True))
        packed = int(asked["packed"].sum())
        budget = self.rules.max_num_batched_tokens
        self.beside = None if budget is None else max(0, budget - packed)
        chunks = [(read, tokens) for _, read, tokens in self.chunks(self.beside)]
        assert list(asked.get("chunks", [])) == chunks
        if budget is not None:
            assert packed + sum(tokens for _, tokens in chunks) <= max(budget, packed)

    def commit(self, accepted: list[int], committed: list[int], time_s: float) -> None:
        step = self.stepping
        assert time_s == step.load.time_s + self.step_s(step)
        for place, one in enumerate(self.running):
            ranks = [] if step.table is None else step.table.hit_rank[step.anchor[place]].tolist()
            hits = sum(rank <= step.width[place] for rank in ranks)
            assert accepted[place] == hits
            more = committed[place]
            assert 1 <= more <= min(hits + 1, self.left[one])
            self.context[one] += more
            self.left[one] -= more
            self.deferred[one] = 0 if step.table is not None else self.deferred[one] + more
            if not self.left[one]:
                assert self.facts["finish_s"][one] == time_s
        self.running = [one for one in self.running if self.left[one]]

    def step_s(self, step: Stepping) -> float:
        """The price of `UnevenCost`, by hand."""
        cost, asked = self.run.cost, step.asked
        units = 1 + (sum(step.width) + len(step.width)) % 3
        draft_s = 0.0 if step.table is None else cost.draft_s
        tokens = sum(tokens for _, tokens in asked.get("chunks", []))
        return draft_s + units * STEP_S + self.prompts_s(tokens)

    def hold(self, blocks: int) -> None:
        if self.total is not None:
            assert blocks == self.committed_blocks() <= self.total


def check_all(run: Run) -> None:
    """Assert every law of a finished run."""
    accounts_of(run.facts).check(run.job.settings.server.kv_blocks)
    walks = [Walk(run, server) for server in run.servers]
    check_ends(run)
    check_texts(run)
    check_clocks(run)
    check_counts(run, walks)
    check_router(run)


def check_ends(run: Run) -> None:
    """Everybody came and is finished or rejected; memory and places are free again."""
    requests = run.facts.requests
    assert not np.isnan(requests["arrival_s"]).any()
    assert (np.isnan(requests["finish_s"]) == requests["rejected"]).all()
    for server in run.servers:
        assert (server.batch, server.requests, server.tokens) == (0, 0, 0)
        assert server._kv.held == 0


def check_texts(run: Run) -> None:
    """Rounds walk a request's text, and from its end into the next of the ring."""
    rounds, recording, work = run.facts.rounds, run.job.recording, run.workload
    offset, counts = recording.anchor_offset, recording.anchor_counts
    for request in np.flatnonzero(~run.facts.requests["rejected"]).tolist():
        own = rounds["request"] == request
        sequence = int(work.sequence[request])
        anchor = int(offset[sequence] + work.first_output[request])
        left = int(work.output_tokens[request]) - (not work.warmup[request])
        hand_overs = 0
        for here, accepted, committed in zip(
            *(rounds[name][own].tolist() for name in ("anchor", "accepted", "committed")),
            strict=True,
        ):
            end = int(offset[sequence] + counts[sequence])
            if anchor == end:
                sequence = next_in_ring(run, sequence)
                anchor, end = int(offset[sequence]), int(offset[sequence] + counts[sequence])
                hand_overs += 1
            assert here == anchor
            assert committed == min(accepted + 1, end - anchor, left)
            anchor += committed
            left -= committed
        assert left == 0
        assert run.facts.requests["hand_overs"][request] == hand_overs


def next_in_ring(run: Run, sequence: int) -> int:
    """The next text of more than one token and of the same domain, in the shuffled order."""
    recording = run.job.recording
    assert run.job.lengths is not None  # recorded texts end where they end
    domain = recording["domain"]
    ring = [
        one
        for one in shuffled_sequences(run.job.settings.seed, run.job.sequences).tolist()
        if recording["output_len"][one] > 1 and domain[one] == domain[sequence]
    ]
    return ring[(ring.index(sequence) + 1) % len(ring)]


def check_clocks(run: Run) -> None:
    """No replica is in two steps at a time, and no request; times are binary fractions: exact."""
    steps, rounds = run.facts.steps, run.facts.rounds
    begin_s, end_s = steps["time_s"], steps["time_s"] + steps["step_s"]
    for replica in range(len(run.servers)):
        own = steps["replica"] == replica
        assert (begin_s[own][1:] >= end_s[own][:-1]).all()
    order = np.argsort(rounds["request"], kind="stable")
    request, step = rounds["request"][order], rounds["step"][order]
    same = request[1:] == request[:-1]
    assert (begin_s[step[1:]] >= end_s[step[:-1]])[same].all()
    first_s = run.facts.requests["first_token_s"]
    assert (begin_s[rounds["step"]] >= first_s[rounds["request"]]).all()
    assert (
        steps["replica"][rounds["step"]] == run.facts.requests["replica"][rounds["request"]]
    ).all()


def check_counts(run: Run, walks: list[Walk]) -> None:
    requests, steps, rounds = run.facts.requests, run.facts.steps, run.facts.rounds
    first = np.count_nonzero(~requests["warmup"] & ~requests["rejected"])
    assert rounds["committed"].sum() + first == requests["output_tokens"].sum()
    pushes = sum(walk.pushes for walk in walks)
    assert pushes == requests["preemptions"].sum() == steps["preempted"].sum()
    # Prompts are read once, and again after every preemption: `Walk` knows which.
    assert sum(walk.read_tokens for walk in walks) == sum(run.cost.prefilled)
    if not pushes:
        came = run.workload.context[~requests["rejected"]]
        assert sum(run.cost.prefilled) == came.sum()


def check_router(run: Run) -> None:
    """Where a request goes, told from the tables alone; not where something ends just then."""
    requests, name = run.facts.requests, run.job.settings.server.router
    replica, replicas = requests["replica"], len(run.servers)
    if name == "round_robin":
        assert replica.tolist() == [one % replicas for one in range(len(replica))]
        return
    steps = run.facts.steps
    ends_s = {*requests["finish_s"].tolist(), *(steps["time_s"] + steps["step_s"]).tolist()}
    context = contexts(run)
    for request, at_s in enumerate(requests["arrival_s"].tolist()):
        if at_s in ends_s:
            continue
        others = np.arange(request)[~requests["rejected"][:request]]
        here = others[requests["finish_s"][others] > at_s]
        least = name == "least_loaded"
        weight = [context(one, at_s) if least else 1 for one in here.tolist()]
        load = np.bincount(replica[here], weight, replicas)
        assert replica[request] == int(np.argmin(load))


def contexts(run: Run):
    """A function of request and time: its tokens of context, or those that it is yet to read."""
    rounds, steps = run.facts.rounds, run.facts.steps
    end_s = (steps["time_s"] + steps["step_s"])[rounds["step"]]

    def context(request: int, at_s: float) -> int:
        own = (rounds["request"] == request) & (end_s <= at_s)
        return int(run.workload.context[request] + rounds["committed"][own].sum())

    return context


def tables(run: Run) -> list[tuple[str, bytes]]:
    """Every column of the run's tables, as bytes."""
    parts = (run.facts.requests, run.facts.steps, run.facts.rounds)
    return [(name, column.tobytes()) for part in parts for name, column in part.items()]
