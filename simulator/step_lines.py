"""The lines of a run's steps and rounds, before they are columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulator.cost import StepTime
from simulator.policy import Load, Outcome

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

    def take(self) -> tuple[Columns, Columns]:
        """Columns of the steps noted so far and of their rounds; they are forgotten here."""
        steps, rounds = self._steps, self._rounds
        self._steps, self._rounds, self.rounds = [], [], 0
        return _columns(self.kinds, steps), {
            name: np.concatenate([np.zeros(0, np.int64), *arrays])
            for name, arrays in zip(ROUND_COLUMNS, zip(*rounds, strict=True), strict=True)
        }


def _columns(kinds: dict[str, type], lines: list[tuple]) -> Columns:
    return {
        name: np.array(values, kind)
        for (name, kind), values in zip(kinds.items(), zip(*lines, strict=True), strict=True)
    }


def filled(steps: Columns) -> Columns:
    """`steps` with all columns, in their order: zeros for those that may be missing."""
    zeros = np.zeros(len(steps["time_s"]))
    given = dict.fromkeys(DEFAULT, zeros) | steps
    kinds = STEP_COLUMNS | {name: float for name in steps if name not in STEP_COLUMNS}
    return {name: np.asarray(given[name], kind) for name, kind in kinds.items()}


def step_totals(steps: Columns, rounds: Columns, first: int = 0) -> Columns:
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
