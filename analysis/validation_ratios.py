"""Of live runs, how much faster the fastest policy is than the others, beside the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, fsum, log

from analysis.intervals import Estimate, estimate
from analysis.validation import Validation

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
    values = {
        (cell["policy"], cell["concurrency"]): (
            [log(value) for value in cell["measured"][_METRIC]],
            log(cell["predicted"][_METRIC]),
        )
        for cell in validation.data["cells"]
    }
    policies, loads = validation.policies, validation.concurrencies
    if len(policies) < 2 or any(key not in values for key in product(policies, loads)):
        return None

    def live(policy: str, at: Sequence[int]) -> float:
        return _mean([_mean(values[policy, load][0]) for load in at])

    def ratio(other: str, at: Sequence[int]) -> Ratio:
        pairs = [(values[best, load], values[other, load]) for load in at]
        repeats = zip(
            *([a - b for a, b in zip(one[0], two[0], strict=True)] for one, two in pairs),
            strict=True,
        )
        found: Estimate = estimate([_mean(row) for row in repeats])
        predicted = exp(_mean([one[1] - two[1] for one, two in pairs]))
        if found.half_width is None:
            return Ratio(other, exp(found.mean), None, None, predicted)
        return Ratio(other, exp(found.mean), exp(found.low), exp(found.high), predicted)

    best = max(policies, key=lambda policy: live(policy, loads))
    others = sorted(set(policies) - {best}, key=lambda policy: -live(policy, loads))
    at = {
        load: ratio(max(others, key=lambda policy: live(policy, [load])), [load]) for load in loads
    }
    return Ahead(best, tuple(ratio(other, loads) for other in others), at)


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
