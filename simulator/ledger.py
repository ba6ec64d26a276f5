"""What happened in a run: plain facts, from which `simulator.metrics` derives the numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulator.cost import StepTime
from simulator.policy import Load, Outcome
from simulator.workload import Workload
from traces.recording import Recording

Columns = dict[str, np.ndarray]

_STEP = {
    "time_s": float,
    "draft_s": float,
    "verify_s": float,
    "host_s": float,
    "source": np.int64,
    "batch": np.int64,
    "queued": np.int64,
    "drafted": bool,
    "order_ties": np.int64,  # requests whose order has neighbours of exactly equal score
}
_TIMES = ("arrival_s", "admitted_s", "first_token_s", "finish_s")
_ROUND = ("request", "anchor", "width", "accepted", "committed")


@dataclass(frozen=True, slots=True)
class Facts:
    """Columns of the three tables of a run, and whether its load was a closed loop.

    A round is one request in one step; `rounds` are in step order.
    """

    requests: Columns  # (N,)
    steps: Columns  # (S,)
    rounds: Columns  # (sum of batches,): step, request, anchor, width, accepted, committed
    concurrency: int | None  # clients of a closed loop

    @property
    def duration_s(self) -> float:
        return float(self.requests["finish_s"].max())


@dataclass(frozen=True, slots=True)
class Texts:
    """What the requests read and wrote: S sequences, N requests."""

    domain: np.ndarray  # (S,) index of the sequence's domain
    prompt_tokens: np.ndarray  # (S,)
    output_tokens: np.ndarray  # (N,) without what existed before a warm-up request


def texts_of(recording: Recording, workload: Workload) -> Texts:
    """The texts of a replay: every request writes the recorded outputs of its sequence."""
    # A warm-up request starts with outputs 0..first_output there; the others with none.
    before = np.where(workload.warmup, workload.first_output + 1, 0)
    outputs = recording["output_len"][workload.sequence].astype(np.int64)
    return Texts(recording["domain"], recording["prompt_len"], outputs - before)


@dataclass(slots=True)
class Ledger:
    """Filled by an engine: times of every request, and a line for every step and its rounds."""

    workload: Workload
    arrival_s: np.ndarray = field(init=False)
    admitted_s: np.ndarray = field(init=False)  # taken from the queue, prefill begins
    first_token_s: np.ndarray = field(init=False)  # prefill ends and emits output 0
    finish_s: np.ndarray = field(init=False)
    _extra: tuple[str, ...] = ()
    _steps: list[tuple] = field(default_factory=list)
    _rounds: list[tuple] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in _TIMES:
            setattr(self, name, np.full(len(self.workload), np.nan))

    def step(
        self,
        load: Load,
        time: StepTime,
        anchor: np.ndarray,
        outcome: Outcome,
        ties: int,
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
        self._check_extra(tuple(sorted(extra_s)))
        parts = (time.draft_s, time.verify_s, time.host_s, int(time.source))
        more = (extra_s[name] for name in self._extra)
        self._steps.append(
            (load.time_s, *parts, load.batch, load.queued, outcome.drafted, ties, *more)
        )
        self._rounds.append(
            (outcome.request, anchor, outcome.width, outcome.accepted, outcome.committed)
        )

    def _check_extra(self, names: tuple[str, ...]) -> None:
        if not self._steps:
            self._extra = names
            odd = [name for name in names if name in _TAKEN or not name.endswith("_s")]
            if odd:
                raise ValueError(f"step column {odd[0]!r}; accepted: a new name that ends in _s")
        elif names != self._extra:
            raise ValueError(f"step columns {names}; accepted: {self._extra}, as in other steps")

    def facts(self, texts: Texts) -> Facts:
        """The tables, once every request is finished."""
        steps = _columns(_STEP | dict.fromkeys(self._extra, float), self._steps)
        rounds = self._round_columns(steps["batch"])
        requests = self._request_columns(texts, rounds, steps["drafted"])
        return Facts(requests, steps | _step_totals(steps, rounds), rounds, self.workload.clients)

    def _round_columns(self, batch: np.ndarray) -> Columns:
        lists = zip(*self._rounds, strict=True) if self._rounds else [()] * len(_ROUND)
        columns = {
            name: np.concatenate([np.zeros(0, np.int64), *arrays])
            for name, arrays in zip(_ROUND, lists, strict=True)
        }
        return {"step": np.repeat(np.arange(len(batch)), batch)} | columns

    def _request_columns(self, texts: Texts, rounds: Columns, drafted) -> Columns:
        work, count = self.workload, len(self.workload)

        def per_request(values: np.ndarray | None = None) -> np.ndarray:
            return np.bincount(rounds["request"], values, count).astype(np.int64)

        return {
            "request": np.arange(count),
            "sequence": work.sequence,
            "domain": texts.domain[work.sequence].astype(np.int64),
            **{name: getattr(self, name) for name in _TIMES},
            "prompt_tokens": texts.prompt_tokens[work.sequence].astype(np.int64),
            "output_tokens": texts.output_tokens.astype(np.int64),
            "rounds": per_request(),
            "drafted": per_request(drafted[rounds["step"]]),
            "accepted": per_request(rounds["accepted"]),
            "draft_nodes": per_request(rounds["width"]),
            "warmup": work.warmup,
        }


_TOTALS = ("step", "step_s", "draft_nodes", "packed_tokens", "accepted", "committed")
_TAKEN = {*_STEP, *_TOTALS}  # columns of the steps whatever the run


def _columns(kinds: dict[str, type], lines: list[tuple]) -> Columns:
    lists = zip(*lines, strict=True) if lines else [()] * len(kinds)
    return {
        name: np.array(values, kind)
        for (name, kind), values in zip(kinds.items(), lists, strict=True)
    }


def _step_totals(steps: Columns, rounds: Columns) -> Columns:
    """Columns of the steps that are sums over their parts or their rounds."""
    count = len(steps["time_s"])

    def per_step(name: str) -> np.ndarray:
        return np.bincount(rounds["step"], rounds[name], count).astype(np.int64)

    nodes = per_step("width")
    return {
        "step": np.arange(count),
        "step_s": steps["draft_s"] + steps["verify_s"] + steps["host_s"],
        "draft_nodes": nodes,
        "packed_tokens": nodes + steps["batch"],
        "accepted": per_step("accepted"),
        "committed": per_step("committed"),
    }
