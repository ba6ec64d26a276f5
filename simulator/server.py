"""The server: continuous batching, one step after another, on the clock of SimPy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator

import numpy as np
import simpy

from simulator.cost import StepCost, StepTime
from simulator.ledger import Ledger
from simulator.orders.specs import Order
from simulator.policy import Draft, Load, Outcome, Policy, Step
from simulator.widths import checked_widths, verifies_trees
from simulator.workload import Workload
from traces.recording import Recording

# Rows of the slots. LEFT: outputs the text still holds, which no policy is shown. ALLOWED: what
# max_new_tokens leaves.
# DEFERRED: committed tokens that the drafter has not read, because plain steps passed it by.
REQUEST, ANCHOR, CONTEXT, LEFT, ALLOWED, DEFERRED = range(6)


class Server:
    """Runs `policy` over the requests of `workload`, replaying `recording` at the price of `cost`.

    The policy is shown `told`, by default the same.

    Running requests hold the first `batch` slots in the order of their admission. What a step
    accepts comes from the orders' hit ranks, which the policy never sees.
    """

    def __init__(
        self,
        env: simpy.Environment,
        policy: Policy,
        recording: Recording,
        cost: StepCost,
        workload: Workload,
        capacity: int,
        tables: Callable[[Order], object],
        on_finish: Callable[[int], None] | None = None,
        told: StepCost | None = None,
    ) -> None:
        self.env, self.policy, self.cost = env, policy, cost
        self._told = told or cost
        self.ledger = Ledger(workload)
        self.capacity, self.clients = capacity, workload.clients or capacity
        self.batch = self.finished = 0
        self.queue: deque[int] = deque()
        self._slots = np.zeros((6, capacity), np.int64)
        self._starts = _starts(recording, workload)  # (6, N) a slot's column at admission
        self._done = [env.event() for _ in range(len(workload))]
        self._arrival = env.event()
        self._tables, self._trees = tables, {}
        self._on_finish = on_finish

    def submit(self, request: int) -> simpy.Event:
        """Queue a request; the event fires with its last token."""
        self.ledger.arrival_s[request] = self.env.now
        self.queue.append(request)
        if not self._arrival.triggered:
            self._arrival.succeed()
        return self._done[request]

    def serve(self) -> Generator:
        """Admit, prefill, plan, draft, allocate, verify, commit, observe, finish; until the end."""
        while self.finished < len(self._done):
            yield self.env.timeout(0)  # clients answer finished requests before slots are refilled
            if (yield from self._admit()):
                continue  # one-token requests are done at once, their clients send again
            if not self.batch:
                yield self._next_arrival()
                continue
            load, anchor = self._load(), self._slots[ANCHOR, : self.batch].copy()
            table = self._plan(load)
            width = self._allocate(load, table, anchor)
            time = self._price(load, table, anchor, width)
            yield self.env.timeout(time.total_s)
            outcome = self._commit(load, table, anchor, width, time.total_s)
            self.ledger.step(load, time, anchor, outcome, _ties(table, anchor))
            self.policy.observe(outcome)
            self._finish()

    def _admit(self) -> Generator:
        """Start waiting requests, first come first served; returns how many ended at once.

        Each is prefilled before the next, while running requests wait; requests that come
        meanwhile are started too. Prefill emits output 0; that of a warm-up request covers its
        outputs so far.
        """
        ended = 0
        while self.queue and self.batch < self.capacity:
            request = self.queue.popleft()
            self.ledger.admitted_s[request] = self.env.now
            prefill_s = self.cost.prefill_s(int(self._starts[CONTEXT, request]))
            if prefill_s:  # an empty timeout would let others go first
                yield self.env.timeout(prefill_s)
            self.ledger.first_token_s[request] = self.env.now
            if self._starts[LEFT, request]:
                self._slots[:, self.batch] = self._starts[:, request]
                self.batch += 1
            else:
                self._end(request)
                ended += 1
        return ended

    def _next_arrival(self) -> simpy.Event:
        self._arrival = self.env.event()
        return self._arrival

    def _load(self) -> Load:
        slots = self._slots[:, : self.batch]
        return Load(
            time_s=self.env.now,
            batch=self.batch,
            queued=len(self.queue),
            max_concurrency=self.clients,
            context=slots[CONTEXT].copy(),
            remaining=slots[ALLOWED].copy(),
            request=slots[REQUEST].copy(),
        )

    def _plan(self, load: Load):
        """The table of the step's order, None for a plain decoding step."""
        order = self.policy.plan(load)
        return None if order is None else self._tables(order)

    def _allocate(self, load: Load, table, anchor: np.ndarray) -> np.ndarray:
        """Nodes per request, as the policy chose them: (batch,)."""
        if table is None:
            return np.zeros(load.batch, np.int64)
        size = table.size[anchor]
        draft = Draft(table.score[anchor], table.depth[anchor], table.parent[anchor], size)
        width = self.policy.allocate(Step(load, draft, table.spec, self._told))
        return checked_widths(self.policy, width, size, table)

    def _price(self, load: Load, table, anchor: np.ndarray, width: np.ndarray) -> StepTime:
        tree = table is not None and self._is_tree(table) and bool(width.any())
        ordered = 0 if table is None else int(table.size[anchor].sum())
        return self.cost.step(
            width + 1,
            load.context,
            drafted=table is not None,
            tree=tree,
            ordered=ordered,
            fed=self.policy.drafts,
            deferred=int(self._slots[DEFERRED, : self.batch].sum()),
        )

    def _is_tree(self, table) -> bool:
        if table.spec not in self._trees:
            self._trees[table.spec] = verifies_trees(table)
        return self._trees[table.spec]

    def _commit(self, load: Load, table, anchor, width, step_s: float) -> Outcome:
        """Move every request past its accepted tokens and the bonus, which is always emitted."""
        slots = self._slots[:, : self.batch]
        accepted = np.zeros_like(width) if table is None else table.accepted(anchor, width)
        committed = np.minimum(accepted + 1, slots[LEFT])
        slots[ANCHOR] += committed
        slots[CONTEXT] += committed
        slots[LEFT] -= committed
        slots[ALLOWED] -= committed
        if self.policy.drafts:  # a round that drafts leaves its own tokens to the next draft's time
            slots[DEFERRED] = 0 if table is not None else slots[DEFERRED] + committed
        request = slots[REQUEST].copy()
        drafted = table is not None
        return Outcome(self.env.now, step_s, drafted, request, width, accepted, committed)

    def _finish(self) -> None:
        """Free the slots of requests without tokens left; the others move up."""
        slots = self._slots[:, : self.batch]
        going = slots[LEFT] > 0
        if going.all():
            return
        for request in slots[REQUEST, ~going].tolist():
            self._end(request)
        self.batch = int(np.count_nonzero(going))
        self._slots[:, : self.batch] = slots[:, going]

    def _end(self, request: int) -> None:
        self.ledger.finish_s[request] = self.env.now
        self._done[request].succeed()
        self.finished += 1
        if self._on_finish is not None:
            self._on_finish(self.finished)


def _ties(table, anchor: np.ndarray) -> int:
    """Requests of the step whose order has neighbours of equal score."""
    return 0 if table is None else int(np.count_nonzero(table.ties[anchor]))


def _starts(recording: Recording, workload: Workload) -> np.ndarray:
    """Slot columns at admission: (6, N). The root is the last token that exists, its KV does not.

    Context: prompt + committed outputs - 1, which is what prefill reads. Left: outputs behind the
    root. Allowed: those that max_new_tokens leaves behind it.
    """
    sequence, first = workload.sequence, workload.first_output
    longest = recording.meta["generation"]["max_new_tokens"]
    return np.stack(
        [
            np.arange(len(workload)),
            recording.anchor_offset[sequence] + first,
            recording["prompt_len"][sequence] + first,
            recording.anchor_counts[sequence] - first,
            longest - 1 - first,
            np.zeros(len(workload), np.int64),
        ]
    ).astype(np.int64)
