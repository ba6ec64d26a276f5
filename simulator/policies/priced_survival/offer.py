"""How many nodes a step verifies: what they are worth against what the step costs.

The cost is a staircase, so every total is looked at; a rule that stops at the first node that does
not pay cannot see past a jump. On a plateau the worth rises, so the best total is a plateau's end
or everything there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.cost import StepCost
from simulator.policies.shared.selection import merged_requests, padded_curve_s, step_curve_s
from simulator.policy import FITTING, Lab, Step


@dataclass(frozen=True, slots=True)
class Offer:
    """What the best 0 to N nodes of a step are worth, and the step's seconds with them.

    With dense padding, N counts nodes per request: those below the largest tree are free.
    """

    gain: np.ndarray  # (N + 1,)
    step_s: np.ndarray  # (N + 1,)
    base: float  # worth of the tokens that come without any node
    request: np.ndarray | None  # (N,) whose node comes next; None: dense padding
    size: np.ndarray  # (B,) nodes that exist

    def rate(self, nodes: int) -> float:
        """Worth per second of a step with that many."""
        return float((self.base + self.gain[nodes]) / self.step_s[nodes])

    def best_by_rate(self) -> int:
        """The number with the most worth per second, the smallest of equals."""
        return int(np.argmax((self.base + self.gain) / self.step_s))

    def best_at(self, price: float | None) -> int:
        """The number whose worth exceeds its seconds at `price` most; None: as `best_by_rate`."""
        if price is None:
            return self.best_by_rate()
        return int(np.argmax(self.gain - price * self.step_s))

    def widths(self, nodes: int) -> np.ndarray:
        """Nodes of every request: (B,)."""
        if self.request is None:
            return np.minimum(self.size, nodes)
        return np.bincount(self.request[:nodes], minlength=len(self.size))


def offer_of(step: Step, key: np.ndarray, base: float, limit_s: float | None = None) -> Offer:
    """The offer of keys (B, M), non-increasing along each row.

    limit_s: no longer step, if one with fewer nodes keeps to it.
    """
    draft, request = step.draft, None
    if step.cost.packing == "dense":
        gains = np.where(np.arange(key.shape[1]) < draft.size[:, None], key, 0.0).sum(axis=0)
        step_s = padded_curve_s(step, len(gains))
    else:
        request, gains = merged_requests(key, draft.size, draft.depth)
        step_s = step_curve_s(step, request, tree=True)
    most = _within(step_s, limit_s)
    gain = np.concatenate([[0.0], np.cumsum(gains[:most])])
    return Offer(gain, step_s[: most + 1], base, request, draft.size)


def _within(step_s: np.ndarray, limit_s: float | None) -> int:
    """Nodes up to which every step keeps to `limit_s`; 0 where none does."""
    if limit_s is None:
        return len(step_s) - 1
    over = np.flatnonzero(step_s > limit_s)
    return max(0, int(over[0]) - 1) if len(over) else len(step_s) - 1


def plain_s(cost: StepCost, batch: int, context: float) -> float:
    """Seconds of a plain decoding step of a policy that drafts at other times."""
    device_s = cost.verify_s(batch, batch, context)
    terms = {"requests": batch, "drafted": False, "tree": False, "fed": True}
    return device_s + cost.host.seen_s(0, device_s, **terms)


def reading_steps(lab: Lab, batch: int) -> float:
    """What a drafter reads after a long rest, in plain steps: half of every request's text."""
    texts = np.concatenate([lab.sequences(split) for split in FITTING])
    if not len(texts) or not lab.cost.host.catch_up_token_s:
        return 0.0
    tokens = batch * float(lab.recording["output_len"][texts].mean()) / 2
    return tokens * lab.cost.host.catch_up_token_s / plain_s(lab.cost, batch, lab.context)


def attention_s(step: Step) -> np.ndarray:
    """Seconds that one packed token of each request costs beyond one at the mean context: (B,).

    From the cost model: what a longer context adds to more tokens, beyond what it adds to few.
    """
    cost, batch, context = step.cost, step.batch, step.load.context
    mean = max(float(context.mean()), 1.0)
    few, many = batch, 8 * batch
    added_s = [
        cost.verify_s(batch, total, 2 * mean) - cost.verify_s(batch, total, mean)
        for total in (few, many)
    ]
    per_token_s = max(0.0, added_s[1] - added_s[0]) / ((many - few) * mean)
    return per_token_s * (context - mean)
