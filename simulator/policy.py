"""What a policy is: at most three verbs, and what each of them sees.

No verb is shown `hit_rank`: whether a node will be accepted is known only to the engine. `prepare`
is given it for the calibration and tuning splits alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.calibration.lab import FITTING as FITTING
from simulator.calibration.lab import Lab as Lab

if TYPE_CHECKING:
    from simulator.cost import StepCost
    from simulator.orders.specs import Order
    from simulator.policies.shared.rules import Rule


@dataclass(frozen=True, slots=True)
class Load:
    """The server at the start of a step.

    `remaining` is what `max_new_tokens` leaves; whether a text ends sooner, nobody knows yet.
    """

    time_s: float
    batch: int
    queued: int
    max_concurrency: int  # of this replica: its share of the clients; an open loop's cap
    context: np.ndarray  # (batch,) KV tokens before the root
    remaining: np.ndarray  # (batch,) max_new_tokens - tokens emitted
    request: np.ndarray | None = None  # (batch,) ids, as in `Outcome.request`


@dataclass(frozen=True, slots=True)
class Draft:
    """The drafted order of every request in the step, M nodes at most."""

    score: np.ndarray  # (batch, M) log survival, non-increasing for nested orders, -inf padding
    depth: np.ndarray  # (batch, M) 1-based, 0 padding
    parent: np.ndarray  # (batch, M) index in the row, -1 = root
    size: np.ndarray  # (batch,) nodes that exist


@dataclass(frozen=True, slots=True)
class Step:
    """What `allocate` decides on."""

    load: Load
    draft: Draft
    order: Order
    cost: StepCost

    @property
    def batch(self) -> int:
        return self.load.batch

    @property
    def context(self) -> float:
        """Mean KV tokens before the root."""
        return float(np.add.reduce(self.load.context)) / self.batch


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step did, per request."""

    time_s: float
    step_s: float
    drafted: bool
    request: np.ndarray  # (batch,) request ids
    width: np.ndarray  # (batch,) draft nodes verified
    accepted: np.ndarray  # (batch,) draft tokens accepted, unclipped
    committed: np.ndarray  # (batch,) tokens emitted

    def copied(self) -> Outcome:
        """One with arrays of its own, for a policy that may write into them."""
        arrays = (self.request, self.width, self.accepted, self.committed)
        return Outcome(self.time_s, self.step_s, self.drafted, *(one.copy() for one in arrays))


class Policy:
    """Base of all policies; override `allocate`, and the rest where needed."""

    order: Order | None = None
    drafts: bool = True  # False: never; a live engine then need not feed the drafter
    near_threshold: int = 0  # decisions within 1e-4 of a threshold, reported in the summary

    def prepare(self, lab: Lab) -> None:
        """Fit on the calibration and tuning splits; called once, before the run."""

    def plan(self, load: Load) -> Order | None:
        """Before drafting: the order of this step, or None for a plain decoding step."""
        return self.order

    def allocate(self, step: Step) -> np.ndarray:
        """After drafting: (batch,) nodes to verify per request, between 0 and the order's size."""
        raise NotImplementedError(f"{type(self).__name__} must say how many nodes to verify")

    def observe(self, outcome: Outcome) -> None:
        """After the step: accepted and committed tokens, time."""

    def rule(self, batch: int) -> Rule | None:
        """What `plan` and `allocate` do at `batch` live requests, in closed form (compiled rounds).

        None: nothing so simple, ask them every step. See `simulator.policies.shared.rules`.
        """
        return None

    def describe(self) -> dict:
        """Fitted values for the summary, JSON types only."""
        return {}

    def notes(self) -> list[str]:
        """After the run: what a user should know of it, a line each (of the first replica)."""
        return []
