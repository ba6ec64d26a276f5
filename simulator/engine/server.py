"""One replica: continuous batching, one step after another, on the clock of SimPy."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator
from functools import cache

import numpy as np
import simpy

from simulator.cost import StepCost, StepTime
from simulator.engine.admission import Entry, KvBlocks, Reading
from simulator.engine.settings import ServerSettings
from simulator.orders.specs import Order
from simulator.policies.checks import checked_widths, verifies_trees
from simulator.policy import Draft, Load, Outcome, Policy, Step
from simulator.results.ledger import Ledger, Serving
from traces.common.errors import InputError
from traces.recordings.recording import Recording

# Rows of the slots. LEFT: outputs the sequence still holds, and MORE: those that come from others
# behind it, which no policy is shown. ALLOWED: what max_new_tokens leaves. DEFERRED: committed
# tokens that the drafter has not read, because plain steps passed it by.
REQUEST, ANCHOR, CONTEXT, LEFT, ALLOWED, DEFERRED, MORE = range(7)
ROWS = 7


class Server:
    """Runs `policy` over the requests it is sent, replaying `recording` at the price of `cost`.

    The policy is shown `told`, by default the same.

    Running requests hold the first `batch` slots in the order of their admission. What a step
    accepts comes from the orders' hit ranks, which the policy never sees.

    Args:
        capacity: most requests admitted at a time. clients: of this replica, as policies are told.
        following: (S,) the sequence in which a text goes on where its own ends; None: none does.
        on_finish: called with every request that has ended, or been rejected.
    """

    def __init__(
        self,
        env: simpy.Environment,
        policy: Policy,
        recording: Recording,
        cost: StepCost,
        ledger: Ledger,
        capacity: int,
        clients: int,
        tables: Callable[[Order], object],
        on_finish: Callable[[int], None],
        settings: ServerSettings | None = None,
        told: StepCost | None = None,
        following: np.ndarray | None = None,
        replica: int = 0,
    ) -> None:
        self.env, self.policy, self.cost, self.ledger = env, policy, cost, ledger
        self._drafts = policy.drafts  # what it says once; the drafter is fed, or not, all along
        self._told, self.settings = told or cost, settings or ServerSettings()
        rules = self.settings
        self._whole = rules.prefill == "whole" and not rules.mixed  # prompts are read between steps
        self.capacity, self.clients, self.replica = capacity, clients, replica
        self.batch = 0
        self.queue: deque[Entry] = deque()
        self._reading = Reading()
        self._slots = np.zeros((ROWS, capacity), np.int64)
        self._kv = KvBlocks(rules.kv_blocks, rules.kv_block, rules.watermark)
        self._preempted = 0  # since the last step
        self._waiting_tokens = 0  # of the queue
        self._arrival = env.event()
        self._tables = tables
        self._is_tree = cache(lambda order: verifies_trees(tables(order)))
        self._on_finish, self._following = on_finish, following
        self._offset, self._anchors = recording.anchor_offset, recording.anchor_counts

    @property
    def requests(self) -> int:
        """Requests here: waiting, being read, running."""
        return len(self.queue) + len(self._reading) + self.batch

    @property
    def tokens(self) -> int:
        """Tokens of context that they hold or will read."""
        read = sum(entry.context for entry in self._reading.entries)
        return self._waiting_tokens + read + int(self._slots[CONTEXT, : self.batch].sum())

    def submit(self, column: list[int], size: int) -> None:
        """Queue a request: its slot's column at the root, and the outputs it will emit."""
        entry = Entry(column, column[CONTEXT], size=size)
        if not self._kv.fits(entry.context + size):
            self.ledger.note("rejected", column[REQUEST], self.env.now)
            self._on_finish(column[REQUEST])
            return
        self.queue.append(entry)
        self._waiting_tokens += entry.context
        if not self._arrival.triggered:
            self._arrival.succeed()

    def serve(self) -> Generator:
        """Admit, prefill, plan, draft, allocate, verify, commit, observe, finish; for ever."""
        while True:
            yield self.env.timeout(0)  # clients answer finished requests before slots are refilled
            if self._whole and (yield from self._admit()):
                continue  # one-token requests are done at once, their clients send again
            while not self._whole and (entry := self._next_entry()) is not None:
                entry.read = 0
                self._reading.entries.append(entry)
            if self.batch and (self.settings.mixed or not len(self._reading)):
                yield from self._step()
            elif len(self._reading):
                yield from self._read_alone()
            else:
                self._arrival = self.env.event()
                yield self._arrival

    # ---------------------------------------------------------------- admission and prefill

    def _admit(self) -> Generator:
        """Start waiting requests, in the queue's order; returns how many ended at once.

        Each is prefilled before the next, while running requests wait; requests that come
        meanwhile are started too. Prefill emits output 0; that of a warm-up request covers its
        outputs so far.
        """
        ended = 0
        while (entry := self._next_entry()) is not None:
            prefill_s = self.cost.prefill_s(entry.context)
            if prefill_s:  # an empty timeout would let others go first
                self._reading.entries.append(entry)  # routers see it
                yield self.env.timeout(prefill_s)
                self._reading.entries.popleft()
            ended += not self._begin(entry)
            self._count_kv()
        return ended

    def _next_entry(self) -> Entry | None:
        """The next request that may come in, off the queue; None: none, or no room."""
        inside = self.batch + len(self._reading)
        if not self.queue or inside >= self.capacity:
            return None
        # Preempted requests, at the queue's head, are shorter than all others.
        entry = self.queue[0]
        if self.settings.scheduling == "shortest_first":  # by what no engine knows
            entry = min(self.queue, key=lambda entry: entry.size)
        # the next roots of those that run come before a newcomer
        if self._kv.limited and not self._kv.admits(
            entry.context + 1, self._blocks(), alone=inside == 0
        ):
            return None
        self.queue.remove(entry)
        self._waiting_tokens -= entry.context
        if entry.fresh:
            self.ledger.note("admitted_s", entry.column[REQUEST], self.env.now)
        if self._kv.limited:
            self._kv.held += self._kv.blocks(entry.context + 1)
        return entry

    def _begin(self, entry: Entry) -> bool:
        """Let a read request join the batch; False: output 0 was its last."""
        if entry.fresh:
            self.ledger.note("first_token_s", entry.column[REQUEST], self.env.now)
            entry.fresh = False
        if not entry.column[LEFT]:
            self._end(entry.column[REQUEST])
            return False
        self._slots[:, self.batch] = entry.column
        self.batch += 1
        return True

    def _read_alone(self) -> Generator:
        """A step that only reads prompts, while running requests wait."""
        taken = self._reading.chunks(self.settings.max_num_batched_tokens)
        chunks = [(entry.read, tokens) for entry, tokens in taken]
        yield self.env.timeout(self.cost.chunks_s(chunks) if chunks else 0.0)
        self._finish_reading(taken)

    def _finish_reading(self, taken: list) -> None:
        for entry in self._reading.read(taken):
            self._begin(entry)
        self._count_kv()

    # ---------------------------------------------------------------- a step

    def _step(self) -> Generator:
        if self._kv.limited:
            self._make_room()
        load, anchor = self._load(), self._slots[ANCHOR, : self.batch].copy()
        shown = self._load()  # a policy may write into what it is shown
        table, width = self._decide(shown, anchor)
        if self._kv.limited:
            width = self._held_with(width, table)
        budget = self.settings.max_num_batched_tokens
        if budget is not None:  # prompts get what it leaves
            budget = max(0, budget - int(width.sum()) - self.batch)
        taken = self._reading.chunks(budget)
        time = self._price(load, table, anchor, width, taken)
        blocks, preempted, self._preempted = self._kv.held, self._preempted, 0
        yield self.env.timeout(time.total_s)
        outcome = self._commit(load, table, anchor, width, time.total_s)
        tokens = sum(count for _, count in taken)
        serving = Serving(self.replica, tokens, blocks, preempted)
        ties = 0 if table is None else int(np.count_nonzero(table.ties[anchor]))
        self.ledger.step(load, time, anchor, outcome, ties, serving)
        self.policy.observe(outcome.copied())
        self._finish()
        self._finish_reading(taken)

    def _load(self) -> Load:
        slots = self._slots[:, : self.batch]
        return Load(
            time_s=self.env.now,
            batch=self.batch,
            queued=len(self.queue) + len(self._reading),
            max_concurrency=self.clients,
            context=slots[CONTEXT].copy(),
            remaining=slots[ALLOWED].copy(),
            request=slots[REQUEST].copy(),
        )

    def _decide(self, load: Load, anchor: np.ndarray):
        """The table of the step's order, None for a plain decoding step; and (batch,) nodes."""
        order = self.policy.plan(load)
        if order is None:
            return None, np.zeros(load.batch, np.int64)
        if not self._drafts:
            name = type(self.policy).__name__
            raise InputError(
                f"policy {name}: drafts is False, but plan gave an order; accepted: None"
            )
        table = self._tables(order)
        size = table.size[anchor]
        draft = Draft(table.score[anchor], table.depth[anchor], table.parent[anchor], size.copy())
        width = self.policy.allocate(Step(load, draft, table.spec, self._told))
        return table, checked_widths(self.policy, width, size, table)

    def _make_room(self) -> None:
        """Push out whoever came last while there is no block for the next root of every request.

        One that is alone always has room: others are rejected when they come.
        """
        while self._blocks() > self._kv.total:
            if len(self._reading):
                self._push_back(self._reading.entries.pop())
            else:
                self.batch -= 1
                column = self._slots[:, self.batch].tolist()
                column[DEFERRED] = 0  # a prompt that is read again is read by the drafter too
                self._push_back(Entry(column, column[CONTEXT], fresh=False))

    def _blocks(self, ahead: np.ndarray | int = 1) -> int:
        """Blocks of prompts that are read, and of every running request with so many tokens more.

        ahead: the root, and nodes that are verified.
        """
        running = self._kv.blocks(self._slots[CONTEXT, : self.batch] + ahead)
        reading = sum(self._kv.blocks(entry.context + 1) for entry in self._reading.entries)
        return int(running.sum()) + reading

    def _held_with(self, width: np.ndarray, table) -> np.ndarray:
        """Hold the step's blocks; nodes that find none are not verified: (batch,) widths.

        No request is pushed out for the draft of another: the largest trees are cut, all to the
        same size. A shape that may not be cut goes whole or not at all.
        """

        def capped(most: int) -> np.ndarray:
            return np.minimum(width, most) if table.nested else np.where(width > most, 0, width)

        def too_many(most: int) -> bool:
            return self._blocks(1 + capped(most)) > self._kv.total

        held = self._blocks(1 + width)
        if held > self._kv.total:
            sizes = range(1, int(width.max()) + 1)
            width = capped(bisect_left(sizes, True, key=too_many))
            held = self._blocks(1 + width)
        self._kv.held = held
        return width

    def _push_back(self, entry: Entry) -> None:
        """Preemption by recomputation: what was read is forgotten."""
        self.ledger.note("preemptions", entry.column[REQUEST], 1)
        self._preempted += 1
        entry.read = entry.size = 0  # nobody is shorter
        self.queue.appendleft(entry)
        self._waiting_tokens += entry.context

    def _count_kv(self) -> None:
        """What is held between steps: committed tokens' blocks alone."""
        if self._kv.limited:
            self._kv.held = self._blocks(ahead=0)

    def _price(self, load: Load, table, anchor, width, taken) -> StepTime:
        tree = table is not None and self._is_tree(table.spec) and bool(width.any())
        ordered = 0 if table is None else int(table.size[anchor].sum())
        return self.cost.step(
            width + 1,
            load.context,
            drafted=table is not None,
            tree=tree,
            ordered=ordered,
            fed=self._drafts,
            deferred=int(self._slots[DEFERRED, : self.batch].sum()),
            **({"chunks": [(entry.read, tokens) for entry, tokens in taken]} if taken else {}),
        )

    def _commit(self, load: Load, table, anchor, width, step_s: float) -> Outcome:
        """Move every request past its accepted tokens and the bonus, which is always emitted."""
        slots = self._slots[:, : self.batch]
        accepted = np.zeros_like(width) if table is None else table.accepted(anchor, width)
        committed = np.minimum(accepted + 1, slots[LEFT])
        slots[ANCHOR] += committed
        slots[CONTEXT] += committed
        slots[LEFT] -= committed
        slots[ALLOWED] -= committed
        if self._drafts:  # a round that drafts leaves its own tokens to the next draft's time
            slots[DEFERRED] = 0 if table is not None else slots[DEFERRED] + committed
        request = slots[REQUEST].copy()
        drafted = table is not None
        return Outcome(self.env.now, step_s, drafted, request, width, accepted, committed)

    def _finish(self) -> None:
        """Free the slots of requests without tokens left; the others move up."""
        slots = self._slots[:, : self.batch]
        over = slots[LEFT] == 0
        if over.any():
            for place in np.flatnonzero(over & (slots[MORE] > 0)).tolist():
                self._hand_over(slots[:, place])
            going = slots[LEFT] > 0
            for request in slots[REQUEST, ~going].tolist():
                self._end(request)
            self.batch = int(np.count_nonzero(going))
            self._slots[:, : self.batch] = slots[:, going]
        self._count_kv()

    def _hand_over(self, column: np.ndarray) -> None:
        """Go on in the next sequence: the last token of one stands for output 0 of the next."""
        here = int(np.searchsorted(self._offset, column[ANCHOR] - 1, side="right")) - 1
        sequence = int(self._following[here])
        column[ANCHOR] = self._offset[sequence]
        column[LEFT] = min(int(self._anchors[sequence]), int(column[MORE]))
        column[MORE] -= column[LEFT]
        self.ledger.note("hand_overs", int(column[REQUEST]), 1)

    def _end(self, request: int) -> None:
        self.ledger.note("finish_s", request, self.env.now)
        self._on_finish(request)
