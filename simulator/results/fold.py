"""What a streamed run adds up to, and the requests that are still open.

Steps and rounds wait until it is settled whether they lie in the window (see `completions`), are
then folded block by block, and steps go to their file. Requests follow in the order they end, once
the time of their end is settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.engine.arrivals import LazyWorkload, Workload
from simulator.results.facts import ROUND_COLUMNS, STEP_COLUMNS, Columns, Facts, filled, step_totals
from simulator.results.files import REQUESTS, STEPS, RunFiles, named_requests, named_steps
from simulator.results.invariants import Accounts
from simulator.results.open_requests import INSIDE, NAMES, WORK, OpenRequests
from simulator.results.quantiles import Samples
from simulator.results.summary import Measures
from simulator.results.sums import RequestSums, RoundSums, StepSums
from simulator.results.window import Completions, Ended, Window
from traces.recordings.recording import Recording

_AT_ONCE = 1 << 12  # anchors whose pools are read together


class AnchorCounts:
    """Rounds by anchor; the memory is that of the recording's anchors, whatever the run."""

    def __init__(self) -> None:
        self._counts = np.zeros(0, np.int64)

    def add(self, anchor: np.ndarray) -> None:
        """Count (n,) rounds."""
        counts = np.bincount(anchor, minlength=len(self._counts))
        if len(counts) > len(self._counts):
            counts[: len(self._counts)] += self._counts
            self._counts = counts
        else:
            self._counts += counts

    def near(self, recording: Recording, below: float) -> int | None:
        """Rounds whose two best target tokens are nearer than `below`; None: not recorded."""
        margin = recording.arrays.get("target_margin")
        if margin is None:
            return None
        return int(self._counts[margin[: len(self._counts)] < below].sum())

    def sampled_error_bound(self, recording: Recording) -> dict[str, float]:
        """Mean and maximum over rounds, see `orders.sampled_fit`."""
        from simulator.orders.families.sampled_fit import sampled_error_bound

        total = largest = 0.0
        visited = np.flatnonzero(self._counts)
        for first in range(0, len(visited), _AT_ONCE):
            some = visited[first : first + _AT_ONCE]
            bound = sampled_error_bound(recording, some)
            total += float(bound @ self._counts[some])
            largest = max(largest, float(bound.max()))
        return {"mean": total / int(self._counts.sum()), "max": largest}


# ---------------- A workload that is read once, and what is read of it.


class Source:
    """A workload whose rows are kept, as they are read, until `take` asks for them.

    In all else it is the workload.
    """

    def __init__(self, workload: Workload | LazyWorkload) -> None:
        self._workload = workload
        self._held: Columns = {}
        self._first = self._end = 0  # numbers of the requests held

    def __len__(self) -> int:
        return len(self._workload)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)

    def block(self, first: int, count: int) -> Columns:
        """As the workload's."""
        columns = self._workload.block(first, count)
        self.note(first, columns)
        return columns

    def note(self, first: int, columns: Columns) -> None:
        """Keep rows from request `first` on that are new.

        Raises:
            ValueError: rows behind which others are missing.
        """
        end = first + len(columns["sequence"])
        if end <= self._end:
            return
        if first > self._end:
            raise ValueError(f"requests {self._end} to {first - 1} were not read")
        more = {name: columns[name][self._end - first :] for name in WORK}
        held = self._held
        self._held = {n: np.concatenate([held[n], more[n]]) for n in WORK} if held else more
        self._end = end

    def take(self, first: int, count: int) -> Columns:
        """`WORK` of requests from `first` on, as many of `count` as were read.

        Those before `first` are forgotten. A workload in memory is read here where the server did
        not.
        """
        if first + count > self._end and isinstance(self._workload, Workload):
            self.block(self._end, first + count - self._end)
        skipped = max(0, first - self._first)
        self._held = {name: column[skipped:] for name, column in self._held.items()}
        self._first += skipped
        return {name: column[:count] for name, column in self._held.items()}


class Book:
    """Arguments as of `StreamLedger`. Of each request, calls come in the order of its life."""

    def __init__(
        self,
        workload: Workload | LazyWorkload,
        files: RunFiles,
        domains: tuple[str, ...],
        replicas: int,
        limits: Mapping[str, float] | None,
        exact: int,
        block: int,
    ) -> None:
        from simulator.results.rounds import fold

        self._fold_rounds = fold
        self.source, self.accounts = Source(workload), Accounts()
        self._files, self._domains, self._block = files, domains, block
        self._steps, self._rounds, self._gaps = StepSums(replicas), RoundSums(), Samples(exact)
        self._requests = RequestSums(len(domains), replicas, limits, exact)
        self._anchors = AnchorCounts()
        self._completions = Completions(workload.clients, workload.ramp)
        self._open, self._ended = OpenRequests(), Ended()
        self._waiting: deque[_Waiting] = deque()
        self._waiting_rounds = self._noted_steps = 0

    # ---------------------------------------------------------------- what is told

    def times(self, name: str, request: np.ndarray, time_s: np.ndarray) -> None:
        """(n,) requests arrive, are admitted, emit their first token, or finish."""
        if name == "arrival_s":
            self._open.add(request, time_s)
            return
        place = self._open.places(request)
        if name == "admitted_s":  # again after a preemption: the first time counts
            fresh = np.isnan(self._open[name][place])
            place, time_s = place[fresh][::-1], time_s[fresh][::-1]
        self._open[name][place] = time_s
        if name == "finish_s":
            self._completions.note(time_s)
            self._ended.add(request, time_s)

    def place(self, request: np.ndarray, replica: np.ndarray) -> None:
        """(n,) requests go to (n,) replicas."""
        self._open["replica"][self._open.places(request)] = replica

    def count(self, name: str, request: np.ndarray) -> None:
        """Something happens to (n,) requests, to some more than once."""
        np.add.at(self._open[name], self._open.places(request), 1)

    def reject(self, request: np.ndarray, time_s: np.ndarray) -> None:
        """(n,) requests can never be served."""
        self._open["rejected"][self._open.places(request)] = True
        self._ended.add(request, time_s)

    def take(self, steps: Columns, rounds: Columns) -> None:
        """Let steps and rounds wait, with all columns."""
        number = len(steps["time_s"])
        if number:
            steps = filled(steps)
            steps |= step_totals(steps, rounds, self._noted_steps)
            self._noted_steps += number
            self._waiting.append(_Waiting(steps, rounds))
            self._waiting_rounds += len(rounds["request"])

    # ---------------------------------------------------------------- what is settled

    def settle(self) -> None:
        """Fold what is settled, if enough waits."""
        self._know()
        enough = max(self._waiting_rounds, len(self._ended)) >= self._block
        window = self._completions.settled() if enough else None
        if window is not None:
            self._settle(window, window.end_s)

    def _know(self) -> None:
        """Learn what was read of the workload about requests that have arrived."""
        unknown = self._open.unknown
        if len(unknown):
            self._open.know(self.source.take(int(unknown[0]), len(unknown)))

    def _settle(self, window: Window, until_s: float) -> None:
        """Fold what is over by `until_s`: nothing later can change what the window says of it.

        Blocks are folded whole, and requests behind all their rounds.
        """
        while self._waiting and self._waiting[0].end_s <= until_s:
            block = self._waiting.popleft()
            self._waiting_rounds -= len(block.rounds["request"])
            self._fold(block.steps, block.rounds, window)
        if self._waiting:
            until_s = min(until_s, self._waiting[0].first_end_s)
        self._release(self._ended.until(until_s), window)

    def _fold(self, steps: Columns, rounds: Columns, window: Window) -> None:
        """Add steps and their rounds to all sums, and steps to their file."""
        inside = window.steps(Facts({}, steps, {}, None))
        place = self._open.known_places(rounds["request"])
        folded = self._fold_rounds(self._open, steps, rounds, inside, place)
        self.accounts.add_steps(steps)
        self.accounts.add_waits(len(place), folded.waited_s, folded.least_s)
        self._anchors.add(rounds["anchor"])
        self._gaps.add(folded.gaps_ms)
        self._rounds.add_steps(steps, inside, folded.accepting)
        self._steps.add(steps, inside)
        self._files.append(STEPS, named_steps(steps))

    def _release(self, request: np.ndarray, window: Window) -> None:
        """Add (n,) requests that are over to all sums and to their file, and forget them."""
        if not len(request):
            return
        place = self._open.known_places(request)
        columns = self._open.columns(place)
        facts = Facts({name: columns[name] for name in NAMES}, {}, {}, None)
        inside = {name: columns[f"in_{name}"] for name in INSIDE}
        self.accounts.add_requests(facts.requests, columns["committed"], columns["last_s"])
        self._requests.add(facts, window, inside)
        tokens = inside["tokens"] + window.admitted(facts)
        self._files.append(REQUESTS, named_requests(facts, window, tokens, self._domains))
        self._open.drop(place)

    def close(self) -> Measures:
        """Fold all that is left; the sums of the whole run."""
        self._know()
        window = self._completions.window()
        self._settle(window, np.inf)
        self._release(np.array(self._open["request"]), window)  # those that did not end
        if not self._noted_steps:
            self._files.append(STEPS, named_steps(_no_steps()))
        self._files.close_tables()
        return Measures(
            window=window,
            duration_s=self._completions.last_s,
            steps=self._steps,
            requests=self._requests,
            rounds=self._rounds,
            gaps=self._gaps,
            anchors=self._anchors,
            prompts=_Prompts(self._files),
        )


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Steps with all their columns, and their rounds."""

    steps: Columns
    rounds: Columns

    @property
    def first_end_s(self) -> float:
        """When its first step ends."""
        return float(self.steps["time_s"][0] + self.steps["step_s"][0])

    @property
    def end_s(self) -> float:
        """When its last step ends."""
        return float(self.steps["time_s"][-1] + self.steps["step_s"][-1])


def _no_steps() -> Columns:
    """All columns of steps, and no rows."""
    steps = filled({name: np.zeros(0, kind) for name, kind in STEP_COLUMNS.items()})
    none = np.zeros(0, np.int64)
    return steps | step_totals(steps, dict.fromkeys(ROUND_COLUMNS, none))


class _Prompts:
    """The prompts of the requests written."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files

    def longer(self, tokens: int) -> float:
        return self._files.prompts_longer(tokens)
