"""Requests of a closed loop, a block at a time, as they stand at admission."""

from __future__ import annotations

import numpy as np

from simulator.cost import StepCost
from simulator.engine.arrivals import LazyWorkload, Workload
from simulator.engine.compiled.kernel import Requests
from traces.recordings.recording import Recording

AT_ONCE = 1 << 13  # requests of a block


class Feed:
    """Blocks in rising order; the memory they take does not grow with the number of requests."""

    def __init__(
        self, recording: Recording, cost: StepCost, workload: Workload | LazyWorkload
    ) -> None:
        self._recording, self._cost, self._workload = recording, cost, workload
        self._prefill_s: dict[int, float] = {}

    def block(self, first: int) -> Requests:
        """Requests `first` and those that follow."""
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
        )

    def _prefills(self, context: np.ndarray) -> np.ndarray:
        """Seconds of each prefill; every length is asked for once."""
        lengths, place = np.unique(context, return_inverse=True)
        known = self._prefill_s
        for tokens in lengths.tolist():
            if tokens not in known:
                known[tokens] = self._cost.prefill_s(tokens)
        return np.array([known[tokens] for tokens in lengths.tolist()], float)[place]
