"""Sums over steps, from which a summary's numbers of steps, cost and replicas follow.

They are added up step block by step block, so that a run of any length needs no table of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from simulator.cost import Source, shares
from simulator.ledger import Columns, Facts
from simulator.window import Window

PARTS = {
    "draft": "draft_s",
    "verify": "verify_s",
    "host": "host_s",
    "prefill": "chunk_s",
    "total": "step_s",
}


@dataclass(slots=True)
class StepSums:
    """Sums over the steps of a window, and over all steps of the run."""

    replicas: int
    # of the window
    steps: int = 0
    committed: int = 0
    packed: int = 0
    executed: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    replica_tokens: np.ndarray = field(init=False)  # (R,) committed
    replica_s: np.ndarray = field(init=False)  # (R,) of its steps
    # of the whole run
    order_ties: int = 0
    prefill_tokens: int = 0
    kv_blocks_peak: int = 0
    source_steps: Counter[int] = field(default_factory=Counter)
    source_s: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.replica_tokens = np.zeros(self.replicas, np.int64)
        self.replica_s = np.zeros(self.replicas)

    @classmethod
    def of(cls, facts: Facts, window: Window, replicas: int) -> StepSums:
        """All steps of a run."""
        sums = cls(replicas)
        sums.add(facts.steps, window.steps(facts))
        return sums

    def add(self, steps: Columns, inside: np.ndarray) -> None:
        """Take (S,) steps in.

        Args:
            inside: (S,) bool, whether each lies in the window.
        """
        self._add_all(steps)
        if not inside.any():
            return
        self.steps += int(np.count_nonzero(inside))
        for part, name in PARTS.items():
            self.seconds[part] += float(steps[name][inside].sum())
        self.committed += int(steps["committed"][inside].sum())
        self.packed += int(steps["packed_tokens"][inside].sum())
        self.executed += int(steps["executed_tokens"][inside].sum())
        if self.replicas > 1:
            replica = steps["replica"][inside]
            self.replica_tokens += self._by_replica(replica, steps["committed"][inside])
            self.replica_s += np.bincount(replica, steps["step_s"][inside], self.replicas)

    def _by_replica(self, replica: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        return np.bincount(replica, tokens, self.replicas).astype(np.int64)

    def _add_all(self, steps: Columns) -> None:
        self.order_ties += int(steps["order_ties"].sum())
        self.prefill_tokens += int(steps["prefill_tokens"].sum())
        self.kv_blocks_peak = max(self.kv_blocks_peak, int(steps["kv_blocks"].max(initial=0)))
        source, step_s = steps["source"], steps["step_s"]
        for kind in np.flatnonzero(np.bincount(source)).tolist():
            this = source == kind
            self.source_steps[kind] += int(np.count_nonzero(this))
            self.source_s[kind] += float(step_s[this].sum())

    def step_ms(self) -> dict[str, float | None]:
        """Mean milliseconds of a step by part."""
        if not self.steps:
            return dict.fromkeys(PARTS)
        return {part: seconds / self.steps * 1e3 for part, seconds in self.seconds.items()}

    def padding_share(self) -> float | None:
        """Share of the verified tokens that are padding; None where executed is not known."""
        return 1 - self.packed / self.executed if self.executed else None

    def cost_shares(self) -> dict[str, dict[str, float]]:
        """See `simulator.cost.shares`."""
        counts = {Source(kind): count for kind, count in sorted(self.source_steps.items())}
        seconds = {Source(kind): total_s for kind, total_s in sorted(self.source_s.items())}
        return shares(counts, seconds)
