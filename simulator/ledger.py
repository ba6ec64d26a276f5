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


@dataclass(slots=True)
class Ledger:
    """Filled by the server: times of every request, and a line for every step and its rounds."""

    workload: Workload
    arrival_s: np.ndarray = field(init=False)
    admitted_s: np.ndarray = field(init=False)
    finish_s: np.ndarray = field(init=False)
    _steps: list[tuple] = field(default_factory=list)
    _rounds: list[tuple] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("arrival_s", "admitted_s", "finish_s"):
            setattr(self, name, np.full(len(self.workload), np.nan))

    def step(self, load: Load, time: StepTime, anchor: np.ndarray, outcome: Outcome, table) -> None:
        """Note one step; `anchor` (batch,) is where each request stood before it."""
        parts = (time.draft_s, time.verify_s, time.host_s, int(time.source))
        ties = 0 if table is None else int(np.count_nonzero(table.ties[anchor]))
        self._steps.append((load.time_s, *parts, load.batch, load.queued, outcome.drafted, ties))
        self._rounds.append(
            (outcome.request, anchor, outcome.width, outcome.accepted, outcome.committed)
        )

    def facts(self, recording: Recording) -> Facts:
        """The tables, once every request is finished."""
        steps = _columns(_STEP, self._steps)
        rounds = self._round_columns(steps["batch"])
        requests = self._request_columns(recording, rounds, steps["drafted"])
        return Facts(requests, steps | _step_totals(steps, rounds), rounds, self.workload.clients)

    def _round_columns(self, batch: np.ndarray) -> Columns:
        lists = zip(*self._rounds, strict=True) if self._rounds else [()] * len(_ROUND)
        columns = {
            name: np.concatenate([np.zeros(0, np.int64), *arrays])
            for name, arrays in zip(_ROUND, lists, strict=True)
        }
        return {"step": np.repeat(np.arange(len(batch)), batch)} | columns

    def _request_columns(self, recording: Recording, rounds: Columns, drafted) -> Columns:
        work, count = self.workload, len(self.workload)

        def per_request(values: np.ndarray | None = None) -> np.ndarray:
            return np.bincount(rounds["request"], values, count).astype(np.int64)

        # A warm-up request starts with outputs 0..first_output there; the others with none.
        before = np.where(work.warmup, work.first_output + 1, 0)
        return {
            "request": np.arange(count),
            "sequence": work.sequence,
            "domain": recording["domain"][work.sequence].astype(np.int64),
            "arrival_s": self.arrival_s,
            "admitted_s": self.admitted_s,
            "first_token_s": self.admitted_s,  # prefill is free and emits output 0
            "finish_s": self.finish_s,
            "prompt_tokens": recording["prompt_len"][work.sequence].astype(np.int64),
            "output_tokens": recording["output_len"][work.sequence].astype(np.int64) - before,
            "rounds": per_request(),
            "drafted": per_request(drafted[rounds["step"]]),
            "accepted": per_request(rounds["accepted"]),
            "draft_nodes": per_request(rounds["width"]),
            "warmup": work.warmup,
        }


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
