"""One load tried with one seed: how long it must run to be believed, and whether it is met."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.engine.fingerprint import identity
from simulator.engine.run import identity_of, prepare, simulate
from simulator.studies.capacity.plan import SearchPlan
from simulator.studies.runs import Result, load_shared, observe
from simulator.studies.steady import SPANS

TOO_SHORT, GROWING, REJECTED = "run too short", "queue grows", "requests rejected"
DOUBT = 3.0  # standard deviations of a share of independent requests
LONGER = 16.0  # times, at most, by which a run that was too short is made longer


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
    """A load that was tried with one seed, and what it came to."""

    load: float
    seed: int
    result: Result


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
    if _hopeless(plan, result) or requests >= asked.max_requests:
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


def _hopeless(plan: SearchPlan, result: Result) -> bool:
    """Whether more requests would not help: a growing queue, or far too many beyond a limit."""
    if plan.asked.attained is None:
        allowed, beyond = 1 - plan.asked.percentile / 100, max(result.missed.values())
    else:
        allowed, beyond = 1 - plan.asked.attained, 1 - result.attained
    deviation = math.sqrt(allowed * (1 - allowed) / max(result.to_judge, 1))
    return result.growing or beyond > allowed + DOUBT * deviation


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a load is met; what fails otherwise, the worst first."""

    failed: tuple[str, ...]

    @property
    def met(self) -> bool:
        return not self.failed

    @property
    def worst(self) -> str | None:
        return self.failed[0] if self.failed else None


def judge(plan: SearchPlan, result: Result) -> Verdict:
    """Whether the run is steady and meets the objectives."""
    long = result.full if plan.whole else result.seconds >= SPANS * result.stay_s
    lasts = long and result.to_judge >= plan.asked.min_requests
    failed = [GROWING] if result.growing else []
    failed += [] if lasts else [TOO_SHORT]
    return Verdict((*failed, *_missed(plan, result)))


def _missed(plan: SearchPlan, result: Result) -> list[str]:
    judged = result.to_judge
    if plan.asked.attained is not None:
        if result.attained >= plan.asked.attained:
            return []
        lost = {REJECTED: result.rejected / judged if judged else 0.0} | result.missed
        return sorted((name for name in lost if lost[name] > 0), key=lambda name: -lost[name])
    levels = {name: result.levels_ms[name] for name in plan.limits}
    over = {
        name: level / plan.limits[name]
        for name, level in levels.items()
        if level is not None and level > plan.limits[name]
    }
    failed = sorted(over, key=lambda name: -over[name])
    if result.rejected > judged * (1 - plan.asked.percentile / 100):
        failed.insert(0, REJECTED)
    return failed
