"""A closed loop served in compiled chunks: `simulator.engine.server`, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np
import simpy

from simulator.cost import StepCost
from simulator.engine.arrivals import LazyWorkload, Workload
from simulator.engine.compiled import kernel
from simulator.engine.compiled.chunk import Chunk
from simulator.engine.compiled.feed import Feed
from simulator.engine.compiled.kernel import ADMITTED, ARRIVED, BATCH, FINISHED, NEAR, NOW
from simulator.engine.compiled.plans import Plans
from simulator.engine.compiled.prices import prices_of
from simulator.orders.specs import Order
from simulator.policy import Policy
from simulator.results.facts import Ledger
from traces.recordings.recording import Recording

CHUNK = 1 << 16  # rounds between two looks at the clock of SimPy


class FastServer:
    """Serves what `compiled.eligible` accepts; arguments as in `simulator.engine.server.Server`.

    The clients are part of it: each sends its next request when its last one ends. `ledger` is
    told of every chunk in bulk, `on_finish` how many requests are finished by then.
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
        on_finish: Callable[[int], None] | None = None,
        chunk: int = CHUNK,
    ) -> None:
        self.env, self.policy, self.ledger = env, policy, ledger
        self._plans = Plans(policy, capacity, tables)
        self._prices = prices_of(cost)
        self._feed = Feed(recording, cost, workload)
        self._on_finish = on_finish
        self._rounds = max(chunk, 2 * capacity)
        self._state = np.zeros(9, np.int64)
        self._clock = np.zeros(2)
        self._slots = np.zeros((7, capacity), np.int64)
        self._heap, self._keys = np.zeros(capacity, np.int64), np.zeros(capacity)
        self._clients, self._total = workload.clients or capacity, len(workload)

    @property
    def finished(self) -> int:
        """Requests that have ended."""
        return int(self._state[FINISHED])

    def serve(self) -> Generator:
        """A process of SimPy: many steps, then one timeout over all of them; until the end."""
        self._clock[NOW] = self.env.now
        self._block = self._feed.block(0)
        self._state[ARRIVED] = sent = min(self._clients, self._total)  # every client's first
        waiting_s, code = np.full(sent, self.env.now), None
        while code != kernel.DONE:
            chunk = Chunk.open(self._state, self._rounds, waiting_s)
            code = self._advance(chunk)
            yield self.env.timeout(max(0.0, float(self._clock[NOW]) - self.env.now))
            self._note(chunk)
            waiting_s = chunk.waiting_s(self._state)

    def _advance(self, chunk: Chunk) -> int:
        """Fill the chunk; returns FULL or DONE."""
        code = kernel.SWITCH
        while code in (kernel.SWITCH, kernel.BLOCK):
            code = kernel.advance(
                self._state,
                self._clock,
                self._slots,
                self._heap,
                self._keys,
                self._block,
                self._plans.rules,
                self._plans.at(max(1, int(self._state[BATCH]))),
                self._prices,
                chunk.steps,
                chunk.rounds,
                chunk.events,
            )
            if code == kernel.BLOCK:
                self._block = self._feed.block(int(self._state[ADMITTED]))
        return code

    def _note(self, chunk: Chunk) -> None:
        """Tell the ledger and the policy what happened in the chunk."""
        chunk.note(self.ledger, self._state)
        self.policy.near_threshold += int(self._state[NEAR])
        self._state[NEAR] = 0
        if self._on_finish is not None:
            self._on_finish(self.finished)
