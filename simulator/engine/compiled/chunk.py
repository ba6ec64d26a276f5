"""Buffers that compiled rounds fill and a ledger reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.compiled.kernel import (
    ADMITTED,
    ARRIVED,
    FINISHED,
    OLD_ADMITTED,
    OLD_FINISHED,
    ROUNDS,
    STEPS,
    Events,
    Rounds,
    Steps,
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Columns of at most `n` steps, rounds and events. Ledgers may keep what they are given."""

    steps: Steps
    rounds: Rounds
    events: Events

    @classmethod
    def open(cls, state: np.ndarray, n: int, waiting_s: np.ndarray) -> Chunk:
        """A chunk in which nothing happened yet; requests that wait arrived at `waiting_s`."""
        state[STEPS] = state[ROUNDS] = 0
        state[OLD_ADMITTED], state[OLD_FINISHED] = state[ADMITTED], state[FINISHED]
        floats, whole = (lambda: np.empty(n)), (lambda: np.empty(n, np.int64))
        events = Events(floats(), floats(), floats(), whole(), floats())
        events.arrival_s[: len(waiting_s)] = waiting_s
        return cls(
            Steps(
                time_s=floats(),
                draft_s=floats(),
                verify_s=floats(),
                host_s=floats(),
                source=whole(),
                batch=whole(),
                drafted=np.empty(n, bool),
                order_ties=whole(),
                executed_tokens=whole(),
            ),
            Rounds(*(whole() for _ in Rounds._fields)),
            events,
        )

    def waiting_s(self, state: np.ndarray) -> np.ndarray:
        """When the requests arrived that are not admitted yet."""
        admitted, arrived = (int(state[i] - state[OLD_ADMITTED]) for i in (ADMITTED, ARRIVED))
        return self.events.arrival_s[admitted:arrived]

    def note(self, ledger, state: np.ndarray) -> None:
        """Tell `ledger`: arrivals and admissions, steps with their rounds, ends.

        Who is not admitted yet is left to the next chunk: their rows may not have been read.
        """
        events, ended = self.events, int(state[FINISHED] - state[OLD_FINISHED])
        admitted = np.arange(state[OLD_ADMITTED], state[ADMITTED])
        if len(admitted):
            for name in ("arrival_s", "admitted_s", "first_token_s"):
                ledger.times(name, admitted, getattr(events, name)[: len(admitted)])
        if state[STEPS]:
            ledger.block(self._step_columns(int(state[STEPS])), self._rounds(int(state[ROUNDS])))
        if ended:
            ledger.times("finish_s", events.finished[:ended], events.finish_s[:ended])

    def _step_columns(self, count: int) -> dict[str, np.ndarray]:
        """Nobody waits in a queue: every client has a slot."""
        columns = {name: values[:count] for name, values in self.steps._asdict().items()}
        return columns | {"queued": np.zeros(count, np.int64)}

    def _rounds(self, count: int) -> dict[str, np.ndarray]:
        return {name: values[:count] for name, values in self.rounds._asdict().items()}
