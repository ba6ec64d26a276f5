"""A run served in compiled chunks: the results of `simulator.engine.server`, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator import compiling
from simulator.cost import StepCost
from simulator.engine.arrivals import LazyWorkload, Workload
from simulator.engine.compiled import modules, rounds
from simulator.engine.compiled.rounds import (
    ADMITTED,
    ARRIVED,
    BATCH,
    FINISHED,
    NEAR,
    OLD_ADMITTED,
    OLD_FINISHED,
    ROUNDS,
    START,
    STEPS,
    Events,
    Requests,
    Rounds,
    Rules,
    Slots,
    Steps,
    Table,
)
from simulator.orders.specs import Order
from simulator.orders.table import OrderTable
from simulator.policies.checks import verifies_trees
from simulator.policies.shared.choices import work_of
from simulator.policies.shared.rules import (
    ALL,
    FixedWidth,
    Plain,
    Priced,
    Rule,
    SharedBudget,
    Threshold,
    fixed,
)
from simulator.policy import Policy
from simulator.results.ledger import Ledger
from traces.recordings.recording import Recording

CHUNK = 1 << 16  # rounds between two notes in the ledger
AT_ONCE = 1 << 13  # requests of a block
_KIND = {
    Plain: rounds.PLAIN,
    FixedWidth: rounds.FIXED,
    Threshold: rounds.THRESHOLD,
    SharedBudget: rounds.SHARED,
    Priced: rounds.PRICED,
}
_FLOATS = {"time_s", "draft_s", "verify_s", "host_s"}


class FastServer:
    """Serves what `simulator.engine.compiled.eligible` accepts; arguments as in `Server`.

    The clients are part of it: each sends its next request when its last one ends. `ledger` is
    told of every chunk in bulk, `on_finish` how many requests are finished by then.

    Args:
        arrival_s: (N,) when the requests of an open loop come; None: a closed loop.
    """

    def __init__(
        self,
        policy: Policy,
        recording: Recording,
        cost: StepCost,
        workload: Workload | LazyWorkload,
        capacity: int,
        tables: Callable[[Order], OrderTable],
        ledger: Ledger,
        on_finish: Callable[[int], None] | None = None,
        arrival_s: np.ndarray | None = None,
        chunk: int = CHUNK,
    ) -> None:
        self.policy, self.ledger, self._on_finish = policy, ledger, on_finish
        self._feed = Feed(recording, cost, workload, arrival_s)
        capacity = min(capacity, len(workload))
        self._plans = Plans(policy, capacity, tables)
        self._prices, self._floor = cost.arrays
        self._rounds = max(chunk, 2 * max(capacity, workload.clients or 0))
        self._state = np.zeros(10, np.int64)
        self._clock = np.zeros(2)
        self._clock[START] = math.inf
        self._slots = Slots(*(np.zeros(capacity, np.int64) for _ in Slots._fields))
        self._work = work_of(capacity, self._plans.widest)
        if arrival_s is None:  # every client's first
            self._state[ARRIVED] = min(workload.clients, len(workload))

    @property
    def finished(self) -> int:
        """Requests that have ended."""
        return int(self._state[FINISHED])

    def run(self) -> None:
        """Serve every request of the workload."""
        block, code = self._feed.block(0), None
        advance = compiling.compiled(*modules(self._plans.pricing is not None)).advance
        waiting_s = np.zeros(int(self._state[ARRIVED]))
        chunk = Chunk.open(self._state, self._rounds, waiting_s)
        while code != rounds.DONE:
            code = advance(
                self._state,
                self._clock,
                self._slots,
                self._work,
                block,
                self._plans.rules,
                self._plans.at(max(1, int(self._state[BATCH]))),
                self._plans.pricing,
                self._prices,
                self._floor,
                (chunk.steps, chunk.rounds, chunk.events),
            )
            if code == rounds.BLOCK:
                block = self._feed.block(int(self._state[ADMITTED]))
            if code in (rounds.FULL, rounds.DONE):
                self._note(chunk)
                waiting_s = chunk.waiting_s(self._state, self._feed.arrival_s)
                chunk = Chunk.open(self._state, self._rounds, waiting_s)

    def _note(self, chunk: Chunk) -> None:
        """Tell the ledger and the policy what happened in the chunk."""
        chunk.note(self.ledger, self._state, self._feed.arrival_s)
        self.policy.near_threshold += int(self._state[NEAR])
        self._state[NEAR] = 0
        if self._on_finish is not None:
            self._on_finish(self.finished)


# ---------------------------------------------------------------- what goes in


class Feed:
    """Blocks in rising order; the memory they take does not grow with the number of requests."""

    def __init__(
        self,
        recording: Recording,
        cost: StepCost,
        workload: Workload | LazyWorkload,
        arrival_s: np.ndarray | None = None,
    ) -> None:
        self._recording, self._cost, self._workload = recording, cost, workload
        self._prefill_s: dict[int, float] = {}
        self.arrival_s = arrival_s

    def block(self, first: int) -> Requests:
        """Requests `first` and those that follow, as they stand at admission."""
        rows = self._workload.block(first, AT_ONCE)
        root = self._recording.anchor_offset[rows["sequence"]] + rows["first_output"]
        # Prefill emits output 0; a warm-up request starts behind the outputs it has.
        behind = rows["output_tokens"] - np.where(rows["warmup"], 0, 1)
        return Requests(
            anchor=root.astype(np.int64),
            context=rows["context"].astype(np.int64),
            left=behind.astype(np.int64),
            prefill_s=self._prefills(rows["context"]),
            first=first,
            total=len(self._workload),
            open=self.arrival_s is not None,
            arrival_s=np.zeros(0) if self.arrival_s is None else self.arrival_s,
        )

    def _prefills(self, context: np.ndarray) -> np.ndarray:
        """Seconds of each prefill; every length is asked for once."""
        lengths, place = np.unique(context, return_inverse=True)
        known = self._prefill_s
        for tokens in lengths.tolist():
            if tokens not in known:
                known[tokens] = self._cost.prefill_s(tokens)
        return np.array([known[tokens] for tokens in lengths.tolist()], float)[place]


@dataclass(frozen=True, slots=True)
class Group:
    """What the batch sizes of a group have in common."""

    kind: int
    order: Order | None = None
    most: int | None = None


class Plans:
    """The rules of every batch size, and the tables behind them, each made when first needed."""

    def __init__(self, policy: Policy, capacity: int, tables) -> None:
        by_batch = [policy.rule(batch) for batch in range(1, capacity + 1)]
        groups = [_group(rule) for rule in by_batch]
        self._groups = list(dict.fromkeys(groups))
        places = [-1, *(self._groups.index(group) for group in groups)]
        number, theta, low, high = zip(*map(_numbers, [Plain(), *by_batch]), strict=True)
        self.rules = Rules(
            np.array(places, np.int64),
            np.array(number, np.int64),
            *(np.array(values, float) for values in (theta, low, high)),
        )
        self._fed, self._order_table = policy.drafts, tables
        self._priced = next((rule for rule in by_batch if isinstance(rule, Priced)), None)
        self.pricing = None if self._priced is None else by_batch[-1].pricing
        self._tables: dict[int, Table] = {}

    @property
    def widest(self) -> int:
        """Nodes of the largest tree that is priced."""
        if self._priced is None:
            return 0
        orders = [group.order for group in self._groups]
        return max(self._order_table(order).max_nodes for order in orders)

    def at(self, batch: int) -> Table:
        """The table of a batch size.

        Raises:
            ValueError: scores that rise along a row, of which a rule takes the first.
        """
        place = int(self.rules.group[batch])
        if place not in self._tables:
            self._tables[place] = self._made(place, self._groups[place])
        return self._tables[place]

    def _made(self, place: int, group: Group) -> Table:
        most = ALL if group.most is None else group.most
        none = np.zeros((1, 1)), np.zeros(1)
        if group.order is None:
            return Table(place, group.kind, most, False, self._fed, *_flat(*_NO_ORDER, *none))
        table = self._order_table(group.order)
        if group.kind not in (rounds.PLAIN, rounds.FIXED) and not falling(table):
            raise ValueError("scores rise along a row: only nested orders share a budget")
        own = self._priced.tables(table) if group.kind == rounds.PRICED else none
        columns = table.score, table.size, table.depth, table.hit_rank, table.ties
        tree = verifies_trees(table)
        return Table(place, group.kind, most, tree, self._fed, *_flat(*columns, *own))


def falling(table: OrderTable, at_once: int = 1 << 14) -> bool:
    """Whether no score exceeds the one before it, among the nodes that exist."""
    slot = np.arange(1, table.score.shape[1])
    for first in range(0, len(table.size), at_once):
        score = table.score[first : first + at_once]
        exists = slot < table.size[first : first + at_once, None]
        if not np.all((score[:, 1:] <= score[:, :-1]) | ~exists):
            return False
    return True


def _group(rule: Rule) -> Group:
    most = rule.most if isinstance(rule, SharedBudget) else None
    return Group(_KIND[type(rule)], rule.order, most)


def _numbers(rule: Rule) -> tuple[int, float, float, float]:
    """Width or nodes, threshold, and what is near it."""
    if isinstance(rule, Threshold):
        return 0, rule.log_theta, rule.near_low, rule.near_high
    if isinstance(rule, SharedBudget):
        return rule.nodes, 0.0, 0.0, 0.0
    width = rule.width if isinstance(rule, FixedWidth) else 0
    return ALL if width is None else width, 0.0, 0.0, 0.0


def _flat(*columns: np.ndarray) -> list[np.ndarray]:
    kinds = (np.float64, np.int32, np.uint8, np.int16, np.int32, np.float64, np.float64)
    return [fixed(*pair) for pair in zip(columns, kinds, strict=True)]


_NO_ORDER = np.zeros((1, 1)), np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1)


# ---------------------------------------------------------------- what comes out


@dataclass(frozen=True, slots=True)
class Chunk:
    """Columns of at most `n` steps, rounds and events. Ledgers may keep what they are given."""

    steps: Steps
    rounds: Rounds
    events: Events

    @classmethod
    def open(cls, state: np.ndarray, n: int, waiting_s: np.ndarray) -> Chunk:
        """A chunk in which nothing happened yet; clients' requests that wait came at `waiting_s`.

        Empty arrays take no memory before they are written.
        """
        state[STEPS] = state[ROUNDS] = 0
        state[OLD_ADMITTED], state[OLD_FINISHED] = state[ADMITTED], state[FINISHED]
        floats, whole = (lambda: np.empty(n)), (lambda: np.empty(n, np.int64))
        events = Events(floats(), floats(), floats(), whole(), floats())
        events.arrival_s[: len(waiting_s)] = waiting_s
        kinds = {name: floats if name in _FLOATS else whole for name in Steps._fields}
        kinds["drafted"] = lambda: np.empty(n, bool)
        steps = Steps(**{name: make() for name, make in kinds.items()})
        return cls(steps, Rounds(*(whole() for _ in Rounds._fields)), events)

    def waiting_s(self, state: np.ndarray, arrival_s: np.ndarray | None) -> np.ndarray:
        """When the clients' requests arrived that are not admitted yet."""
        if arrival_s is not None:
            return np.zeros(0)
        admitted, arrived = (int(state[i] - state[OLD_ADMITTED]) for i in (ADMITTED, ARRIVED))
        return self.events.arrival_s[admitted:arrived]

    def note(self, ledger, state: np.ndarray, arrival_s: np.ndarray | None) -> None:
        """Tell `ledger`: arrivals and admissions, steps with their rounds, ends.

        Who is not admitted yet is left to the next chunk: their rows may not have been read.
        """
        events, ended = self.events, int(state[FINISHED] - state[OLD_FINISHED])
        admitted = np.arange(state[OLD_ADMITTED], state[ADMITTED])
        count = len(admitted)
        if count:  # copies, as what a ledger keeps of a view is the whole array
            own = events.arrival_s[:count].copy() if arrival_s is None else arrival_s[admitted]
            ledger.times("arrival_s", admitted, own)
            for name in ("admitted_s", "first_token_s"):
                ledger.times(name, admitted, getattr(events, name)[:count].copy())
        if state[STEPS]:
            ledger.block(_columns(self.steps, state[STEPS]), _columns(self.rounds, state[ROUNDS]))
        if ended:
            ledger.times("finish_s", events.finished[:ended].copy(), events.finish_s[:ended].copy())


def _columns(table: Steps | Rounds, count: int) -> dict[str, np.ndarray]:
    return {name: values[:count] for name, values in table._asdict().items()}
