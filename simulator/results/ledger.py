"""What an engine tells of a run, added up as soon as it is settled; and its tables, on demand."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.results.facts import (
    REQUEST_COLUMNS,
    ROUND_COLUMNS,
    STEP_COLUMNS,
    TIMES,
    TOTALS,
    Columns,
    Facts,
    joined,
    whole_steps,
)
from simulator.results.files import REQUESTS, STEPS, RunFiles, named_requests, named_steps
from simulator.results.fold import fold, fold_long
from simulator.results.invariants import Accounts
from simulator.results.open_requests import Ended, KeptWorkload, OpenRequests
from simulator.results.sums import Sums
from simulator.results.window import Completions, Window, find_window

if TYPE_CHECKING:
    from simulator.cost import StepTime
    from simulator.engine.arrivals import LazyWorkload, Workload
    from simulator.policy import Load, Outcome

BLOCK = 1 << 16  # rounds, or events, that are taken together
_TAKEN = {*STEP_COLUMNS, *TOTALS}  # columns of the steps whatever the run


@dataclass(frozen=True, slots=True)
class Serving:
    """What a replica did beside decoding in a step."""

    replica: int = 0
    prefill_tokens: int = 0  # of prompts, computed in the step
    kv_blocks: int = 0  # held while it runs
    preempted: int = 0  # requests pushed out since the step before


_ALONE = Serving()


class Ledger:
    """Filled by an engine: times of every request, and a line for every step and its rounds.

    All of it is folded into `sums` and `accounts`, and written to `files` where there are some. A
    ledger that holds a run folds it when it ends, in one block, and hands out its tables. One that
    does not holds open requests only: steps and rounds wait until it is settled whether they lie
    in the window, are then folded block by block, and requests follow in the order they end. Such
    a ledger is told times in their order, and of the workload rows that are read through it.

    Args:
        files: where the tables go; None: nowhere, and the run is held.
        hold: whether the run is held.
        block: rounds that are folded together.
    """

    def __init__(
        self,
        workload: Workload | LazyWorkload,
        files: RunFiles | None = None,
        sums: Sums | None = None,
        *,
        hold: bool = True,
        block: int = BLOCK,
    ) -> None:
        self.files, self.sums, self.accounts = files, sums or Sums(), Accounts()
        self.hold = hold or files is None
        self.workload = workload if self.hold else KeptWorkload(workload)
        self._block, self._extra = block, None
        self._events: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self._lines: list[tuple] = []  # of steps
        self._rounds: list[tuple] = []  # of each of them
        self._noted = self._noted_rounds = self._noted_steps = 0
        self._open, self._ended = OpenRequests(), Ended()
        self._completions = Completions(workload.clients, workload.ramp)
        self._waiting: deque[tuple[Columns, Columns]] = deque()  # steps, and their rounds
        self._waiting_rounds = 0
        self._tables: dict[str, Columns] = {}
        self._fold_rounds = fold if self.hold else fold_long
        if self.hold:
            self._open.add(np.arange(len(workload)))

    # ---------------------------------------------------------------- one event after another

    def note(self, name: str, request: int, value: float) -> None:
        """Note of a request its time `name`, or one more thing that befell it.

        Args:
            name: arrival_s (it is sent), admitted_s (it leaves the queue, prefill begins; the first
                time counts), first_token_s (its prompt is read, output 0 emitted), finish_s (its
                last token is emitted), rejected (it can never be served: a time as well);
                preemptions (it loses its place and what was read of it), hand_overs (it goes on in
                another sequence), replica (where it is sent; 0 where nothing is said).
        """
        self._events[name].append((request, value))
        self._noted += 1
        if self._noted >= 4 * self._block:
            self._flush()

    def step(
        self,
        load: Load,
        time: StepTime,
        anchor: np.ndarray,
        outcome: Outcome,
        ties: int,
        serving: Serving | None = None,
        **extra_s: float,
    ) -> None:
        """Note one step.

        Args:
            anchor: (batch,) where each request stood before it.
            ties: requests whose order has neighbours of exactly equal score.
            extra_s: further columns of the steps in seconds, the same in every step. They are
                parts of `time` or stand beside it; `step_s` does not count them.

        Raises:
            ValueError: a further column that another step lacks, or whose name is not free.
        """
        if self._extra is None:
            odd = [name for name in extra_s if name in _TAKEN or not name.endswith("_s")]
            if odd:
                raise ValueError(f"step column {odd[0]!r}; accepted: a new name that ends in _s")
            self._extra = dict.fromkeys(sorted(extra_s), float)
        elif extra_s.keys() != self._extra.keys():
            known = tuple(self._extra)
            raise ValueError(f"step columns {tuple(extra_s)}; accepted: {known}, as in other steps")
        here = serving or _ALONE
        self._lines.append(
            (
                load.time_s,
                time.draft_s,
                time.verify_s,
                time.host_s,
                int(time.source),
                load.batch,
                load.queued,
                outcome.drafted,
                ties,
                time.chunk_s,
                time.executed,
                here.prefill_tokens,
                here.replica,
                here.kv_blocks,
                here.preempted,
                *(extra_s[name] for name in self._extra),
            )
        )
        self._rounds.append(
            (outcome.request, anchor, outcome.width, outcome.accepted, outcome.committed)
        )
        self._noted_rounds += load.batch
        if max(self._noted_rounds, len(self._lines)) >= self._block:
            self._flush()

    # ---------------------------------------------------------------- many at once

    def times(self, name: str, request: np.ndarray, time_s: np.ndarray) -> None:
        """Note `name` (arrival_s, admitted_s, first_token_s, finish_s) of (n,) requests."""
        if name not in TIMES:
            raise ValueError(f"times of {name!r}; accepted: {', '.join(TIMES)}")
        self._flush()
        self._take_times(name, request, time_s)

    def block(self, steps: Columns, rounds: Columns) -> None:
        """Note many steps at once, in order, after those noted before.

        Args:
            steps: (S,) columns of `STEP_COLUMNS`; those it gives a default may be missing.
            rounds: (sum of batches,) request, anchor, width, accepted, committed; step by step.
        """
        self._flush()
        self._take_steps(steps, rounds)
        self._settle_enough()

    # ---------------------------------------------------------------- what was noted is taken in

    def _flush(self) -> None:
        """Take in what was noted one by one: of each request in the order of its life."""
        if not self._noted and not self._lines:
            return
        for name in ("arrival_s", "admitted_s", "first_token_s"):
            self._take_times(name, *self._taken(name))
        for name in ("replica", "preemptions", "hand_overs"):
            request, value = self._taken(name)
            np.add.at(self._open[name], self._open.places(request), value.astype(np.int64))
        if self._lines:
            lines, rounds = self._lines, self._rounds
            self._lines, self._rounds, self._noted_rounds = [], [], 0
            kinds = STEP_COLUMNS | self._extra
            self._take_steps(
                {n: np.array(v, kinds[n]) for n, v in zip(kinds, zip(*lines), strict=True)},
                {
                    name: np.concatenate(parts).astype(np.int64, copy=False)
                    for name, parts in zip(ROUND_COLUMNS, zip(*rounds), strict=True)
                },
            )
        for name in ("rejected", "finish_s"):
            self._take_times(name, *self._taken(name))
        self._noted = 0
        self._settle_enough()

    def _taken(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(n,) requests and (n,) values of `name` in the order of being noted; forgotten here."""
        columns = np.array(self._events.pop(name, []), float).reshape(-1, 2)
        return columns[:, 0].astype(np.int64), columns[:, 1]

    def _take_times(self, name: str, request: np.ndarray, time_s: np.ndarray) -> None:
        if name == "arrival_s" and not self.hold:
            self._open.add(request)
        place = self._open.places(request)
        if name == "admitted_s":  # again after a preemption: the first time counts
            fresh = np.isnan(self._open[name][place])
            place, time_s = place[fresh][::-1], time_s[fresh][::-1]
        self._open[name][place] = True if name == "rejected" else time_s
        if name == "finish_s":
            self._completions.note(time_s)
        if name in ("finish_s", "rejected") and not self.hold:
            self._ended.add(request, time_s)

    def _take_steps(self, steps: Columns, rounds: Columns) -> None:
        """Let steps and rounds wait, with all columns."""
        number = len(steps["time_s"])
        if number:
            self._waiting.append((whole_steps(steps, rounds, self._noted_steps), rounds))
            self._noted_steps += number
            self._waiting_rounds += len(rounds["request"])

    # ---------------------------------------------------------------- what is settled is folded

    def _settle_enough(self) -> None:
        """Fold what is settled, if enough waits."""
        if self.hold:
            return
        self._know()
        enough = max(self._waiting_rounds, len(self._ended)) >= self._block
        window = self._completions.settled() if enough else None
        if window is not None:
            self._settle(window, window.end_s)

    def _know(self) -> None:
        """Learn what was read of the workload about requests that have arrived."""
        unknown = self._open.unknown
        if len(unknown):
            self._open.know(self.workload.take(int(unknown[0]), len(unknown)))

    def _settle(self, window: Window, until_s: float) -> None:
        """Fold what is over by `until_s`: nothing later can change what the window says of it.

        Blocks are folded whole, and requests behind all their rounds.
        """
        while self._waiting and _ends_s(self._waiting[0][0])[-1] <= until_s:
            self._fold(*self._waiting.popleft(), window)
        if self._waiting:
            until_s = min(until_s, _ends_s(self._waiting[0][0])[0])
        self._release(self._ended.until(until_s), window)

    def _fold(self, steps: Columns, rounds: Columns, window: Window) -> None:
        """Add steps and their rounds to all sums, and steps to their file."""
        self._waiting_rounds -= len(rounds["request"])
        rounds = {"step": np.repeat(np.arange(len(steps["batch"])), steps["batch"])} | rounds
        place = self._open.places(rounds["request"], served=True)
        inside = window.steps(Facts({}, steps, {}, None))
        folded = self._fold_rounds(self._open, place, steps, rounds, inside)
        self.sums.add_steps(steps, rounds, inside, folded)
        self.accounts.add_steps(steps)
        self.accounts.add_waits(len(place), folded.waited_s, folded.least_s)
        if self.files is not None:
            self.files.append(STEPS, named_steps(steps))
        if self.hold:
            self._tables |= {"steps": steps, "rounds": rounds}

    def _release(self, request: np.ndarray, window: Window) -> None:
        """Add (n,) requests that are over to all sums and to their file, and forget them."""
        if not len(request):
            return
        place = self._open.places(request, served=True)
        columns = self._open.columns(place)
        self.accounts.add_requests(columns)
        self.sums.add_requests(columns, window)
        table = {name: columns[name] for name in REQUEST_COLUMNS}
        if self.files is not None:
            named = named_requests(table, window, columns["in_tokens"], self.sums.domains)
            self.files.append(REQUESTS, named)
        if self.hold:
            self._tables["requests"] = table
        self._open.drop(place)

    # ---------------------------------------------------------------- the end

    def close(self, workload: Workload | None = None) -> Sums:
        """Fold all that is left; the sums of the whole run.

        Args:
            workload: with the lengths of texts, where a held run's own was without.
        """
        self._flush()
        if self.hold:
            self._open.know((workload or self.workload).block(0, len(self.workload)))
            if self._waiting:
                self._waiting = deque([tuple(map(joined, zip(*self._waiting, strict=True)))])
            ends = {"finish_s": self._open["finish_s"]}
            window = find_window(Facts(ends, {}, {}, self.workload.clients, self.workload.ramp))
        else:
            self._know()
            window = self._completions.window()
        if not self._noted_steps:
            none = {name: np.zeros(0, kind) for name, kind in STEP_COLUMNS.items()}
            rounds = dict.fromkeys(ROUND_COLUMNS, np.zeros(0, np.int64))
            self._fold(whole_steps(none, rounds), rounds, window)
        self._settle(window, np.inf)
        self._release(np.array(self._open["request"]), window)  # those that did not end
        self.sums.window = window
        return self.sums

    def facts(self, workload: Workload | None = None) -> Facts:
        """The tables of a held run, once every request is over; arguments as of `close`."""
        if "requests" not in self._tables:
            self.close(workload)
        return Facts(**self._tables, concurrency=self.workload.clients, ramp=self.workload.ramp)


def _ends_s(steps: Columns) -> np.ndarray:
    return steps["time_s"] + steps["step_s"]
