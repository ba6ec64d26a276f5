"""Weights that favour requests behind their time per output token."""

from __future__ import annotations

import numpy as np

from simulator.policy import Outcome

ROUNDS = 16  # of the running mean
PULL, LARGEST = 0.1, 8.0


class TpotWeights:
    """w <- clip(w exp(0.1 (TPOT / target - 1)), 1, 8) after every round of a request.

    target_ms: None: every weight is 1.
    """

    def __init__(self, target_ms: float | None) -> None:
        self._target_s = None if target_ms is None else target_ms / 1e3
        self.active = target_ms is not None
        self._running: dict[int, tuple[float, float, float]] = {}  # seconds, tokens, weight

    def of(self, request: np.ndarray) -> np.ndarray:
        """Weights (batch,) of request ids (batch,)."""
        if self._target_s is None:
            return np.ones(len(request))
        return np.array([self._running.get(one, (0, 0, 1.0))[2] for one in request.tolist()])

    def observe(self, outcome: Outcome) -> None:
        """Take a step in; requests that are not in it are over or new."""
        if self._target_s is None:
            return
        keep, running = 1 - 1 / ROUNDS, {}
        for one, tokens in zip(outcome.request.tolist(), outcome.committed.tolist(), strict=True):
            seconds, before, weight = self._running.get(one, (0.0, 0.0, 1.0))
            seconds, before = keep * seconds + outcome.step_s, keep * before + tokens
            late = seconds / before / self._target_s - 1
            running[one] = seconds, before, float(np.clip(weight * np.exp(PULL * late), 1, LARGEST))
        self._running = running
