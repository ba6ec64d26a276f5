"""Whether a run is steady and meets the objectives, and how long it must be to be believed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.studies.capacity.plan import Plan
from simulator.studies.steady import SPANS

if TYPE_CHECKING:
    from simulator.studies.capacity.trial import Trial

TOO_SHORT, GROWING, REJECTED = "run too short", "queue grows", "requests rejected"
DOUBT = 3.0  # standard deviations of a share of independent requests
LONGER = 16.0  # times, at most, by which a run that was too short is made longer


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


def longer_run(plan: Plan, trial: Trial, requests: int) -> int:
    """Requests of a run long enough to be believed; no more than `requests`: this one was."""
    if _hopeless(plan, trial) or requests >= plan.max_requests:
        return requests
    needed_s = plan.min_seconds if plan.whole else SPANS * trial.stay_s
    if plan.whole and not trial.full:
        ratio = 2.0
    else:
        ratio = needed_s / trial.seconds if trial.seconds > 0 else LONGER
        ratio = max(ratio, plan.min_requests / max(trial.judged, 1))
    if ratio <= 1:
        return requests
    longer = math.ceil(requests * min(1.1 * ratio, LONGER))
    return min(longer, plan.max_requests, plan.available)


def _hopeless(plan: Plan, trial: Trial) -> bool:
    """Whether more requests would not help: a growing queue, or far too many beyond a limit."""
    if plan.attained is None:
        allowed, beyond = 1 - plan.percentile / 100, max(trial.missed.values())
    else:
        allowed, beyond = 1 - plan.attained, 1 - trial.attained
    deviation = math.sqrt(allowed * (1 - allowed) / max(trial.judged, 1))
    return trial.growing or beyond > allowed + DOUBT * deviation


def judge(plan: Plan, trial: Trial) -> Verdict:
    """Whether the run is steady and meets the objectives."""
    failed = []
    if trial.growing:
        failed.append(GROWING)
    if not _lasts(plan, trial):
        failed.append(TOO_SHORT)
    return Verdict((*failed, *_missed(plan, trial)))


def _lasts(plan: Plan, trial: Trial) -> bool:
    long = trial.full if plan.whole else trial.seconds >= SPANS * trial.stay_s
    return long and trial.judged >= plan.min_requests


def _missed(plan: Plan, trial: Trial) -> list[str]:
    if plan.attained is not None:
        if trial.attained >= plan.attained:
            return []
        lost = {REJECTED: trial.rejected / trial.judged if trial.judged else 0.0} | trial.missed
        return sorted((name for name in lost if lost[name] > 0), key=lambda name: -lost[name])
    over = {
        name: level / plan.limits[name]
        for name, level in trial.levels_ms.items()
        if level is not None and level > plan.limits[name]
    }
    failed = sorted(over, key=lambda name: -over[name])
    if trial.rejected > trial.judged * (1 - plan.percentile / 100):
        failed.insert(0, REJECTED)
    return failed
