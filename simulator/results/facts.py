"""What happened in a run: plain tables, from which all numbers are derived."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

Columns = dict[str, np.ndarray]

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
TIMES = ("arrival_s", "admitted_s", "first_token_s", "finish_s")
COUNTS = ("rounds", "drafted", "accepted", "draft_nodes")
REQUEST_COLUMNS = (
    *("request", "sequence", "domain", *TIMES, "prompt_tokens", "output_tokens", *COUNTS),
    *("warmup", "replica", "preemptions", "hand_overs", "rejected"),
)


@dataclass(frozen=True, slots=True, eq=False)
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


def joined(parts: Iterable[Columns]) -> Columns:
    """One table of several with the same columns, one behind the other."""
    parts = list(parts)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def whole_steps(steps: Columns, rounds: Columns, first: int = 0) -> Columns:
    """`steps` with all columns: zeros for `DEFAULT`, and sums over parts and rounds of each.

    Args:
        first: number of the first step.
    """
    count, batch = len(steps["time_s"]), steps["batch"]
    given = dict.fromkeys(DEFAULT, np.zeros(count)) | steps
    kinds = STEP_COLUMNS | {name: float for name in steps if name not in STEP_COLUMNS}
    steps = {name: np.asarray(given[name], kind) for name, kind in kinds.items()}
    begins = np.concatenate([[0], np.cumsum(batch)])  # of each step's rounds

    def per_step(name: str) -> np.ndarray:
        if count and batch.min() > 0:
            return np.add.reduceat(rounds[name], begins[:-1])
        until = np.concatenate([[0], np.cumsum(rounds[name])])
        return until[begins[1:]] - until[begins[:-1]]  # a step may have no rounds

    nodes = per_step("width")
    return steps | {
        "step": np.arange(first, first + count),
        "step_s": steps["draft_s"] + steps["verify_s"] + steps["host_s"] + steps["chunk_s"],
        "draft_nodes": nodes,
        "packed_tokens": nodes + batch,
        "accepted": per_step("accepted"),
        "committed": per_step("committed"),
    }
