"""Limits: of a step, and weights that favour requests behind their time per output token."""

from __future__ import annotations

import numpy as np

from simulator.policy import Outcome

ROUNDS = 16  # of the running mean
PULL, LARGEST = 0.1, 8.0


class StepLimit:
    """Milliseconds that a step may take, `max_step_ms`; None: any. Counts those that cannot."""

    def __init__(self, limit_ms: float | None) -> None:
        self.seconds = None if limit_ms is None else limit_ms / 1e3
        self._steps = self._over = 0
        self._shortest_s = np.inf

    def note(self, least_s: float) -> None:
        """Take in a step that drafted: what it takes without a draft node."""
        if self.seconds is None:
            return
        self._steps += 1
        self._over += least_s > self.seconds
        self._shortest_s = min(self._shortest_s, float(least_s))

    def notes(self) -> list[str]:
        """A line where steps could not keep to it."""
        if not self._over:
            return []
        return [
            f"policy.max_step_ms is {self.seconds * 1e3:g}: {self._over} of {self._steps} steps "
            "that drafted take longer without any draft node (the shortest "
            f"{self._shortest_s * 1e3:.3g} ms), and so verified none"
        ]


class TpotWeights:
    """w <- clip(w exp(0.1 (TPOT / target - 1)), 1, 8) after every round of a request.

    target_ms: None: every weight is 1.
    """

    def __init__(self, target_ms: float | None) -> None:
        self._target_s = None if target_ms is None else target_ms / 1e3
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
