"""Replicas behind a router, the clients that send to them, and policies that see the past."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Generator, Iterator

import numpy as np
import simpy

from simulator.cost import StepCost
from simulator.engine.arrivals import LazyWorkload, Workload, rows
from simulator.engine.server import Server
from simulator.engine.settings import ServerSettings
from simulator.orders.specs import Order
from simulator.policy import Load, Outcome, Policy, Step
from simulator.results.ledger import Ledger
from traces.recordings.recording import Recording


class Fleet:
    """`settings.replicas` servers, each with a policy of its own, and a router before them.

    Args:
        policy: prepared; every replica has a copy of it.
        capacity: most requests of one replica. Policies are told their replica's share of the
            clients, as if it served them alone. told: what they are shown of the cost.
        following: see `Server`. on_finish: called with the number of requests that have ended.
    """

    def __init__(
        self,
        env: simpy.Environment,
        policy: Policy,
        recording: Recording,
        cost: StepCost,
        workload: Workload | LazyWorkload,
        capacity: int,
        tables: Callable[[Order], object],
        ledger: Ledger,
        settings: ServerSettings | None = None,
        on_finish: Callable[[int], None] | None = None,
        told: StepCost | None = None,
        following: np.ndarray | None = None,
    ) -> None:
        settings = settings or ServerSettings()
        self.env, self.ledger, self._workload = env, ledger, workload
        self._anchors, self._offset = recording.anchor_counts, recording.anchor_offset
        self._on_finish = on_finish
        self._longest = workload.longest_output or recording.meta["generation"]["max_new_tokens"]
        self._done: dict[int, simpy.Event] = {}  # of clients that wait
        self.finished, self.over = 0, env.event()
        share = -(-workload.clients // settings.replicas) if workload.closed else capacity
        self.policies = [policy, *(copy.deepcopy(policy) for _ in range(settings.replicas - 1))]
        self.servers = [
            Server(
                env,
                Lagged(one, settings.lag) if settings.lag else one,
                recording,
                cost,
                ledger,
                capacity,
                min(share, capacity),
                tables,
                self._end,
                settings,
                told,
                following,
                replica,
            )
            for replica, one in enumerate(self.policies)
        ]
        self._router = ROUTERS[settings.router](self.servers)

    def run(self) -> None:
        """Serve every request of the workload."""
        for server in self.servers:
            self.env.process(server.serve())
        waiting = rows(self._workload)
        if self._workload.closed:
            for _ in range(self._workload.clients):
                self.env.process(self._client(waiting))
        else:
            self.env.process(self._arrivals(waiting))
        self.env.run(self.over)

    @property
    def near_threshold(self) -> int:
        """Decisions near a threshold, of all replicas' policies."""
        return sum(policy.near_threshold for policy in self.policies)

    def _arrivals(self, waiting: Iterator[tuple]) -> Generator:
        """Open loop: the next request comes when its gap is over, whatever the servers do."""
        for row in waiting:
            yield self.env.timeout(row[-1])
            self._submit(row)

    def _client(self, waiting: Iterator[tuple]) -> Generator:
        """Closed loop: send the next waiting request, wait for its last token, repeat."""
        for row in waiting:
            done = self._done[row[0]] = self.env.event()
            self._submit(row)
            yield done

    def _submit(self, row: tuple) -> None:
        """Send a request to the replica that the router names."""
        request, sequence, first, warmup, prompt, context, outputs, _ = row
        server = next(self._router)
        self.ledger.note("arrival_s", request, self.env.now)
        self.ledger.note("replica", request, server.replica)
        behind = outputs - (not warmup)  # outputs behind the root
        left = min(int(self._anchors[sequence]) - first, behind)
        anchor = int(self._offset[sequence]) + first
        # The root is the last token that exists; its keys and values do not.
        allowed = self._longest - 1 - (context - prompt)
        server.submit([request, anchor, context, left, allowed, 0, behind - left], behind)

    def _end(self, request: int) -> None:
        done = self._done.pop(request, None)
        if done is not None:
            done.succeed()
        self.finished += 1
        if self._on_finish is not None:
            self._on_finish(self.finished)
        if self.finished == len(self._workload):
            self.over.succeed()


def round_robin(servers: list[Server]) -> Iterator[Server]:
    """Each in turn."""
    while True:
        yield from servers


def least_loaded(servers: list[Server]) -> Iterator[Server]:
    """The one with the fewest tokens of context, held or waiting; of equals the first."""
    while True:
        yield min(servers, key=lambda server: server.tokens)


def join_shortest_queue(servers: list[Server]) -> Iterator[Server]:
    """The one with the fewest requests, running ones too; of equals the first."""
    while True:
        yield min(servers, key=lambda server: server.requests)


ROUTERS = {
    "round_robin": round_robin,
    "least_loaded": least_loaded,
    "join_shortest_queue": join_shortest_queue,
}


class Lagged(Policy):
    """`policy`, `steps` late: it sees load and survivals of so many steps ago.

    Engines that overlap scheduling with the device decide on step t while step t - 1 runs, so that
    what they know is one step old, or more. Its widths go to the requests they were meant for;
    requests that were not there get the mean of the others, rounded, and nothing exceeds what was
    drafted now. Where the older step drafted nothing, or in another order, there is nothing to go
    by and the policy sees the present.
    """

    def __init__(self, policy: Policy, steps: int) -> None:
        self._policy, self._steps = policy, steps
        self.order, self.drafts = policy.order, policy.drafts
        self._loads: deque[Load] = deque(maxlen=steps + 1)
        self._seen: deque[Step | None] = deque(maxlen=steps + 1)  # by step, None: a plain one
        self._outcomes: deque[Outcome] = deque()

    def plan(self, load: Load):
        """On the load of `steps` ago, or of the first step."""
        self._loads.append(load)
        order = self._policy.plan(self._loads[0])
        if order is None:
            self._seen.append(None)
        return order

    def allocate(self, step: Step) -> np.ndarray:
        """On the draft of `steps` ago, for the requests of now."""
        self._seen.append(step)
        old = self._seen[0] if len(self._seen) > self._steps else None
        if old is None or old.order != step.order:
            return self._policy.allocate(step)
        width = np.asarray(self._policy.allocate(old))
        place = {request: i for i, request in enumerate(old.load.request.tolist())}
        rest = round(float(width.mean()))
        found = [place.get(request) for request in step.load.request.tolist()]
        moved = np.array([rest if i is None else width[i] for i in found], np.int64)  # (batch,)
        size = step.draft.size
        if not step.order.nested:
            return np.where(moved >= 1, size, 0)  # a static shape goes whole or not at all
        return np.minimum(moved, size)

    def observe(self, outcome: Outcome) -> None:
        """Outcomes, as late: each once, in order."""
        self._outcomes.append(outcome)
        if len(self._outcomes) > self._steps:
            self._policy.observe(self._outcomes.popleft())
