"""One load tried with one seed: how long it must run to be believed, and whether it is met."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.engine.fingerprint import identity
from simulator.engine.run import identity_of, prepare, simulate
from simulator.studies.capacity.plan import SearchPlan
from simulator.studies.runs import Result, load_shared, observe

TOO_SHORT, GROWING, REJECTED = "run too short", "queue grows", "requests rejected"
DOUBT = 3.0  # standard deviations of a share of independent requests
LONGER = 16.0  # times, at most, by which a run that was too short is made longer
SPANS = 10.0  # stays that a run of an open loop must last at least


@dataclass(frozen=True, slots=True)
class Probe:
    """A load to be tried with one seed."""

    plan: SearchPlan
    load: float
    seed: int

    @property
    def key(self) -> str:
        """sha256 of what determines the result: the run's own hash, and what is asked of it."""
        plan, asked = self.plan, self.plan.asked
        parts = {
            "run": identity_of(plan.config_at(self.load, self.seed), __name__),
            "limits": dict(plan.limits),
            "rule": [asked.percentile, asked.attained],
            "length": [asked.min_seconds, asked.min_requests, asked.max_requests],
        }
        return identity(parts)


@dataclass(frozen=True, slots=True)
class Trial:
    """A load that was tried with one seed, what it came to, and what fails, the worst first."""

    load: float
    seed: int
    result: Result
    failed: tuple[str, ...]

    @property
    def met(self) -> bool:
        return not self.failed

    @property
    def worst(self) -> str | None:
        return self.failed[0] if self.failed else None


def try_out(probe: Probe) -> Result:
    """Run a probe; in too short a run again, longer, unless it fails beyond doubt.

    Raises:
        InputError: what the policy refuses about the recording or the profile.
    """
    plan, requests = probe.plan, probe.plan.requests_at(probe.load)
    while True:
        job = load_shared(plan.config_at(probe.load, probe.seed, requests))
        result = observe(job, simulate(prepare(job)), plan.judged_by)
        longer = longer_run(plan, result, requests)
        if longer <= requests:
            return result
        requests = longer


def longer_run(plan: SearchPlan, result: Result, requests: int) -> int:
    """Requests of a run long enough to be believed; no more than `requests`: this one was."""
    asked = plan.asked
    if asked.attained is None:
        allowed, beyond = 1 - asked.percentile / 100, max(result.missed.values())
    else:
        allowed, beyond = 1 - asked.attained, 1 - result.attained
    deviation = math.sqrt(allowed * (1 - allowed) / max(result.to_judge, 1))
    hopeless = result.growing or beyond > allowed + DOUBT * deviation
    if hopeless or requests >= asked.max_requests:
        return requests
    needed_s = asked.min_seconds if plan.whole else SPANS * result.stay_s
    if plan.whole and not result.full:
        ratio = 2.0
    else:
        ratio = needed_s / result.seconds if result.seconds > 0 else LONGER
        ratio = max(ratio, asked.min_requests / max(result.to_judge, 1))
    if ratio <= 1:
        return requests
    longer = math.ceil(requests * min(1.1 * ratio, LONGER))
    return min(longer, asked.max_requests, plan.available)


def failures(plan: SearchPlan, result: Result) -> tuple[str, ...]:
    """Why a run is not steady, then the objectives it misses, the worst first; none: it is met."""
    long = result.full if plan.whole else result.seconds >= SPANS * result.stay_s
    lasts = long and result.to_judge >= plan.asked.min_requests
    failed = [GROWING] if result.growing else []
    failed += [] if lasts else [TOO_SHORT]
    if plan.asked.attained is not None:
        if result.attained >= plan.asked.attained:
            return tuple(failed)
        beyond = {REJECTED: result.rejected / max(result.to_judge, 1), **result.missed}
    else:
        if result.rejected > result.to_judge * (1 - plan.asked.percentile / 100):
            failed.append(REJECTED)
        levels = {name: (result.levels_ms[name], limit) for name, limit in plan.limits.items()}
        beyond = {name: ms / limit for name, (ms, limit) in levels.items() if ms and ms > limit}
    worst_first = sorted(beyond, key=lambda name: -beyond[name])
    return (*failed, *(name for name in worst_first if beyond[name] > 0))
