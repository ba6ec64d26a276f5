"""How evenly a server treats its requests: Jain's index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.ledger import Columns


@dataclass(slots=True)
class JainSums:
    """Sums over n shares x, of which (sum x)^2 / (n sum x^2) is Jain's index.

    1 where all are equal, 1 / n where one has everything (Jain, Chiu and Hawe, DEC-TR-301, 1984,
    section 3).
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, shares: np.ndarray) -> None:
        """Take (n,) shares in."""
        self.count += len(shares)
        self.total += float(shares.sum())
        self.squares += float(np.square(shares).sum())

    def join(self, other: JainSums) -> None:
        """Take another group in."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares

    @property
    def index(self) -> float | None:
        """Jain's index; None of nobody, 1 where everyone has nothing."""
        if not self.count:
            return None
        return self.total**2 / (self.count * self.squares) if self.squares else 1.0


@dataclass(slots=True)
class Fairness:
    """Output tokens per second of residence, and draft nodes per round, over requests."""

    rates: JainSums
    nodes: JainSums

    @classmethod
    def none(cls) -> Fairness:
        """Of no request yet."""
        return cls(JainSums(), JainSums())

    def add(self, requests: Columns) -> None:
        """Take finished requests in; one that took no time, or no round, has no share there."""
        stay_s = requests["finish_s"] - requests["arrival_s"]
        stayed, rounds = stay_s > 0, requests["rounds"]
        self.rates.add(requests["output_tokens"][stayed] / stay_s[stayed])
        self.nodes.add(requests["draft_nodes"][rounds > 0] / rounds[rounds > 0])

    def join(self, other: Fairness) -> None:
        """Take another group in."""
        self.rates.join(other.rates)
        self.nodes.join(other.nodes)

    def describe(self) -> dict[str, float | None]:
        """For the summary."""
        return {
            "output_tokens_per_s": self.rates.index,
            "draft_nodes_per_round": self.nodes.index,
        }
