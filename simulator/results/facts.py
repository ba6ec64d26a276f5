"""What happened in a run: plain facts, from which `results.latency` derives the numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulator.cost import StepTime
from simulator.engine.arrivals import Workload
from simulator.policy import Load, Outcome
from traces.recordings.recording import Recording

# ---------------- The lines of a run's steps and rounds, before they are columns.


StepColumns = dict[str, np.ndarray]

STEP_COLUMNS = {
    "time_s": float,
    "draft_s": float,
    "verify_s": float,
    "host_s": float,
    "source": np.int64,
    "batch": np.int64,
    "queued": np.int64,
    "drafted": bool,
    "order_ties": np.int64,  # requests whose order has neighbours of exactly equal score
    "chunk_s": float,  # prompt chunks computed in the step
    "executed_tokens": np.int64,  # by the verify pass, padding included; 0: not known
    "prefill_tokens": np.int64,  # of prompts, computed in the step
    "replica": np.int64,
    "kv_blocks": np.int64,  # held while the step runs
    "preempted": np.int64,  # requests pushed out since the step before
}
DEFAULT = ("chunk_s", "executed_tokens", "prefill_tokens", "replica", "kv_blocks", "preempted")
ROUND_COLUMNS = ("request", "anchor", "width", "accepted", "committed")
TOTALS = ("step", "step_s", "draft_nodes", "packed_tokens", "accepted", "committed")
_TAKEN = {*STEP_COLUMNS, *TOTALS}  # columns of the steps whatever the run


@dataclass(frozen=True, slots=True)
class Serving:
    """What a replica did beside decoding in a step."""

    replica: int = 0
    prefill_tokens: int = 0  # of prompts, computed in the step
    kv_blocks: int = 0  # held while it runs
    preempted: int = 0  # requests pushed out since the step before


_ALONE = Serving()


@dataclass(slots=True)
class StepLines:
    """Steps noted one by one, to be taken as columns."""

    _extra: tuple[str, ...] | None = None
    _steps: list[tuple] = field(default_factory=list)
    _rounds: list[tuple] = field(default_factory=list)
    rounds: int = 0  # that wait to be taken

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def kinds(self) -> dict[str, type]:
        """Types of the steps' columns."""
        return STEP_COLUMNS | dict.fromkeys(self._extra or (), float)

    def add(
        self,
        load: Load,
        time: StepTime,
        anchor: np.ndarray,
        outcome: Outcome,
        ties: int,
        serving: Serving | None,
        extra_s: dict[str, float],
    ) -> None:
        """Note one step; arguments and errors as of `Ledger.step`."""
        self._check_extra(tuple(sorted(extra_s)))
        here = serving or _ALONE
        more = (extra_s[name] for name in self._extra)
        self._steps.append(
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
                *more,
            )
        )
        self._rounds.append(
            (outcome.request, anchor, outcome.width, outcome.accepted, outcome.committed)
        )
        self.rounds += load.batch

    def _check_extra(self, names: tuple[str, ...]) -> None:
        if self._extra is None:
            odd = [name for name in names if name in _TAKEN or not name.endswith("_s")]
            if odd:
                raise ValueError(f"step column {odd[0]!r}; accepted: a new name that ends in _s")
            self._extra = names
        elif names != self._extra:
            raise ValueError(f"step columns {names}; accepted: {self._extra}, as in other steps")

    def take(self) -> tuple[StepColumns, StepColumns]:
        """Columns of the steps noted so far and of their rounds; they are forgotten here."""
        steps, rounds = self._steps, self._rounds
        self._steps, self._rounds, self.rounds = [], [], 0
        return _columns(self.kinds, steps), {
            name: np.concatenate([np.zeros(0, np.int64), *arrays])
            for name, arrays in zip(ROUND_COLUMNS, zip(*rounds, strict=True), strict=True)
        }


def _columns(kinds: dict[str, type], lines: list[tuple]) -> StepColumns:
    return {
        name: np.array(values, kind)
        for (name, kind), values in zip(kinds.items(), zip(*lines, strict=True), strict=True)
    }


def filled(steps: StepColumns) -> StepColumns:
    """`steps` with all columns, in their order: zeros for those that may be missing."""
    zeros = np.zeros(len(steps["time_s"]))
    given = dict.fromkeys(DEFAULT, zeros) | steps
    kinds = STEP_COLUMNS | {name: float for name in steps if name not in STEP_COLUMNS}
    return {name: np.asarray(given[name], kind) for name, kind in kinds.items()}


def step_totals(steps: StepColumns, rounds: StepColumns, first: int = 0) -> StepColumns:
    """Columns of the steps that are sums over their parts or their rounds, step by step.

    Args:
        first: number of the first step.
    """
    count, batch = len(steps["time_s"]), steps["batch"]
    begins = np.concatenate([[0], np.cumsum(batch)])  # of each step's rounds

    def per_step(name: str) -> np.ndarray:
        if count and batch.min() > 0:
            return np.add.reduceat(rounds[name], begins[:-1])
        until = np.concatenate([[0], np.cumsum(rounds[name])])
        return until[begins[1:]] - until[begins[:-1]]  # a step may have no rounds

    nodes = per_step("width")
    return {
        "step": np.arange(first, first + count),
        "step_s": steps["draft_s"] + steps["verify_s"] + steps["host_s"] + steps["chunk_s"],
        "draft_nodes": nodes,
        "packed_tokens": nodes + batch,
        "accepted": per_step("accepted"),
        "committed": per_step("committed"),
    }


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
