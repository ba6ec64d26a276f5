"""What happened in a run: plain facts, from which `simulator.metrics` derives the numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulator.cost import StepTime
from simulator.policy import Load, Outcome
from simulator.step_lines import (
    ROUND_COLUMNS,
    STEP_COLUMNS,
    Serving,
    StepLines,
    filled,
    step_totals,
)
from simulator.workload import Workload
from traces.recording import Recording

Columns = dict[str, np.ndarray]

_STEP = STEP_COLUMNS
_TIMES = ("arrival_s", "admitted_s", "first_token_s", "finish_s")


@dataclass(frozen=True, slots=True)
class Facts:
    """Columns of the three tables of a run, and whether its load was a closed loop.

    A round is one request in one step; `rounds` are in step order.
    """

    requests: Columns  # (N,)
    steps: Columns  # (S,)
    rounds: Columns  # (sum of batches,): step, request, anchor, width, accepted, committed
    concurrency: int | None  # clients of a closed loop
    ramp: int = 0  # completions at either end of an open loop that its window leaves out

    @property
    def duration_s(self) -> float:
        """When the last request ended; 0 where none did."""
        finish_s = self.requests["finish_s"]
        return float(np.max(finish_s, initial=0.0, where=~np.isnan(finish_s)))


@dataclass(frozen=True, slots=True)
class Texts:
    """What the requests read and wrote: S sequences, N requests."""

    domain: np.ndarray  # (S,) index of the sequence's domain
    prompt_tokens: np.ndarray  # (S,)
    output_tokens: np.ndarray  # (N,) without what existed before a warm-up request
    own_prompt: np.ndarray | None = None  # (N,) prompt tokens that are not the sequence's


def texts_of(recording: Recording, workload: Workload) -> Texts:
    """The texts of a replay: the workload's lengths, or the recorded ones of its sequences."""
    work = workload.replaying(recording)
    return Texts(
        recording["domain"], recording["prompt_len"], work.output_tokens, work.prompt_tokens
    )


@dataclass(slots=True)
class Ledger:
    """Filled by an engine: times of every request, and a line for every step and its rounds."""

    workload: Workload
    arrival_s: np.ndarray = field(init=False)
    admitted_s: np.ndarray = field(init=False)  # taken from the queue, prefill begins
    first_token_s: np.ndarray = field(init=False)  # prefill ends and emits output 0
    finish_s: np.ndarray = field(init=False)
    replica: np.ndarray = field(init=False)
    preemptions: np.ndarray = field(init=False)
    hand_overs: np.ndarray = field(init=False)  # times it went on in another sequence
    rejected: np.ndarray = field(init=False)
    _lines: StepLines = field(default_factory=StepLines)
    _blocks: list[tuple[Columns, Columns]] = field(default_factory=list)  # steps, rounds

    def __post_init__(self) -> None:
        count = len(self.workload)
        for name in _TIMES:
            setattr(self, name, np.full(count, np.nan))
        for name in ("replica", "preemptions", "hand_overs"):
            setattr(self, name, np.zeros(count, np.int64))
        self.rejected = np.zeros(count, bool)

    def expect(self, first: int, columns: Columns) -> None:
        """Rows of the workload that are about to arrive; this ledger has the whole workload."""

    def arrive(self, request: int, time_s: float) -> None:
        """A request is sent."""
        self.arrival_s[request] = time_s

    def admit(self, request: int, time_s: float) -> None:
        """A request leaves the queue; the first time counts."""
        if np.isnan(self.admitted_s[request]):
            self.admitted_s[request] = time_s

    def first_token(self, request: int, time_s: float) -> None:
        """A request's prompt is read and output 0 emitted."""
        self.first_token_s[request] = time_s

    def finish(self, request: int, time_s: float) -> None:
        """A request emits its last token."""
        self.finish_s[request] = time_s

    def reject(self, request: int, time_s: float) -> None:
        """A request can never be served: it does not finish, and emits nothing."""
        self.rejected[request] = True

    def preempt(self, request: int) -> None:
        """A request loses its place and what was read of it."""
        self.preemptions[request] += 1

    def hand_over(self, request: int) -> None:
        """A request goes on in another sequence."""
        self.hand_overs[request] += 1

    def place(self, request: int, replica: int) -> None:
        """A request is sent to a replica; 0 where nothing is said."""
        self.replica[request] = replica

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
        self._lines.add(load, time, anchor, outcome, ties, serving, extra_s)

    def block(self, steps: Columns, rounds: Columns) -> None:
        """Note many steps at once, in order, after those noted before.

        Args:
            steps: (S,) columns of `STEP_COLUMNS`; those it gives a default may be missing.
            rounds: (sum of batches,) request, anchor, width, accepted, committed; step by step.
        """
        self._drain()
        self._blocks.append((steps, rounds))

    def times(self, name: str, request: np.ndarray, time_s: np.ndarray) -> None:
        """Note `name` (arrival_s, admitted_s, first_token_s, finish_s) of (n,) requests."""
        if name not in _TIMES:
            raise ValueError(f"times of {name!r}; accepted: {', '.join(_TIMES)}")
        getattr(self, name)[request] = time_s

    def _drain(self) -> None:
        if len(self._lines):
            self._blocks.append(self._lines.take())

    def facts(self, texts: Texts) -> Facts:
        """The tables, once every request is finished or rejected."""
        self._drain()
        steps, rounds = _joined(self._blocks, self._lines.kinds)
        rounds = {"step": np.repeat(np.arange(len(steps["batch"])), steps["batch"])} | rounds
        requests = self._request_columns(texts, rounds, steps["drafted"])
        steps |= step_totals(steps, rounds)
        return Facts(requests, steps, rounds, self.workload.clients, self.workload.ramp)

    def _request_columns(self, texts: Texts, rounds: Columns, drafted) -> Columns:
        work, count = self.workload, len(self.workload)
        prompt = texts.own_prompt
        if prompt is None:
            prompt = texts.prompt_tokens[work.sequence]

        def per_request(values: np.ndarray | None = None) -> np.ndarray:
            return np.bincount(rounds["request"], values, count).astype(np.int64)

        return {
            "request": np.arange(count),
            "sequence": work.sequence,
            "domain": texts.domain[work.sequence].astype(np.int64),
            **{name: getattr(self, name) for name in _TIMES},
            "prompt_tokens": prompt.astype(np.int64),
            "output_tokens": np.where(self.rejected, 0, texts.output_tokens).astype(np.int64),
            "rounds": per_request(),
            "drafted": per_request(drafted[rounds["step"]]),
            "accepted": per_request(rounds["accepted"]),
            "draft_nodes": per_request(rounds["width"]),
            "warmup": work.warmup,
            "replica": self.replica,
            "preemptions": self.preemptions,
            "hand_overs": self.hand_overs,
            "rejected": self.rejected,
        }


def _joined(blocks: list[tuple[Columns, Columns]], kinds: dict[str, type]) -> tuple:
    """Columns of all steps, and of all rounds."""
    parts = [filled(steps) for steps, _ in blocks]
    steps = {
        name: np.concatenate([np.zeros(0, kind), *(part[name] for part in parts)]).astype(kind)
        for name, kind in kinds.items()
    }
    rounds = {
        name: np.concatenate([np.zeros(0, np.int64), *(part[name] for _, part in blocks)])
        for name in ROUND_COLUMNS
    }
    return steps, rounds


__all__ = ["Columns", "Facts", "Ledger", "Serving", "Texts", "texts_of"]
