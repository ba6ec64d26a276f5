"""Of live runs, how much faster the fastest policy is than the others, beside the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from analysis.compare.metrics import estimate
from analysis.read.validations import Validation

_METRIC = "output_throughput"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Throughput of one policy over another's, geometric mean over loads.

    Repeats run the policies in turn, so they are paired: the interval is Student-t over the
    repeats' log ratios.
    """

    over: str
    live: float
    low: float | None  # 95 %, None with one repeat
    high: float | None
    predicted: float

    def __str__(self) -> str:
        between = "" if self.low is None else f"{self.low:.3f} to {self.high:.3f}; "
        return f"{self.live:.3f} times {self.over} ({between}predicted {self.predicted:.3f})"


@dataclass(frozen=True, slots=True)
class Ahead:
    """The policy of the largest geometric mean over all loads, and its ratios."""

    policy: str
    over_all: tuple[Ratio, ...]  # over each other policy, the strongest first
    at: dict[int, Ratio]  # over the fastest other one at each load


def ahead(validation: Validation) -> Ahead | None:
    """None with one policy, or where a policy was not run at every load."""
    cells = {(one["policy"], one["concurrency"]): one for one in validation.data["cells"]}
    policies, loads = validation.policies, validation.concurrencies
    if len(policies) < 2 or any(key not in cells for key in product(policies, loads)):
        return None
    live = {key: np.log(one["measured"][_METRIC]) for key, one in cells.items()}  # (repeats,)
    told = {key: np.log(one["predicted"][_METRIC]) for key, one in cells.items()}

    def strength(policy: str, at: Sequence[int]) -> float:
        return np.mean([live[policy, load] for load in at])

    def ratio(other: str, at: Sequence[int]) -> Ratio:
        logs = np.mean([live[best, load] - live[other, load] for load in at], axis=0)
        predicted = np.exp(np.mean([told[best, load] - told[other, load] for load in at]))
        found = estimate(logs)
        ends = (None, None) if len(logs) == 1 else np.exp(found[["low", "high"]])
        return Ratio(other, float(np.exp(found["mean"])), *ends, float(predicted))

    best = max(policies, key=lambda policy: strength(policy, loads))
    others = sorted(set(policies) - {best}, key=lambda policy: -strength(policy, loads))
    fastest = {load: max(others, key=lambda one: strength(one, [load])) for load in loads}
    at = {load: ratio(other, [load]) for load, other in fastest.items()}
    return Ahead(best, tuple(ratio(other, loads) for other in others), at)
