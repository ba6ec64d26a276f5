"""The answer over all seeds, and what a reader must know about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.engine.run import Job
from simulator.results.summary import what_if_reason
from simulator.studies.capacity.plan import CLIENTS, SearchPlan
from simulator.studies.capacity.search import Sought
from simulator.studies.capacity.trial import TOO_SHORT, Trial, judge
from simulator.studies.report import MUCH
from traces.common.intervals import Interval, over_seeds


@dataclass(frozen=True, slots=True)
class CapacityAnswer:
    """The capacity by its mean over seeds; None where a seed has none."""

    plan: SearchPlan
    job: Job  # any of the runs, for what all of them share
    sought: Sequence[Sought]
    capacity: Interval | None  # 95 % over seeds
    met: int  # seeds that have an answer
    at_least: bool  # whether for a seed nothing larger was tried
    best: Trial | None  # nearest to the objectives, where no seed has an answer
    notes: tuple[str, ...]


def answer_of(plan: SearchPlan, job: Job, sought: Sequence[Sought]) -> CapacityAnswer:
    """The answer of all seeds together."""
    values = [one.found.low for one in sought if one.found.low is not None]
    whole = len(values) == len(sought)
    return CapacityAnswer(
        plan=plan,
        job=job,
        sought=sought,
        capacity=_positive(over_seeds(values)) if whole else None,
        met=len(values),
        at_least=whole and any(one.found.at_least for one in sought),
        best=None if values else _best(plan, sought),
        notes=tuple(dict.fromkeys(_notes(plan, job, sought, len(values)))),
    )


def _positive(found: Interval) -> Interval:
    """No load is below 0, whatever Student's t says of two seeds that are far apart."""
    return Interval(found.value, None if found.low is None else max(found.low, 0.0), found.high)


def _best(plan: SearchPlan, sought: Sequence[Sought]) -> Trial:
    """The trial that misses by least: by the share that meets all, or by the worst ratio."""
    trials = [trial for one in sought for trial in one.trials.values()]

    def miss(trial: Trial) -> float:
        if plan.asked.attained is not None:
            return -trial.result.attained
        levels = {name: trial.result.levels_ms[name] for name in plan.limits}
        return max((ms / plan.limits[k] for k, ms in levels.items() if ms is not None), default=0.0)

    return min(trials, key=lambda trial: (trial.result.growing, miss(trial)))


def _notes(plan: SearchPlan, job: Job, sought: Sequence[Sought], met: int) -> Iterator[str]:
    """What the numbers rest on, in a line each."""
    reason = what_if_reason(job)
    if reason is not None:
        yield f"what-if: {reason}"
    if "ttft" in plan.limits and job.cost.prefill == "none":
        yield "prefill is free with this profile: TTFT is the queue's alone"
    if 0 < met < len(sought):
        yield f"{met} of {len(sought)} seeds meet the objectives at some load, so no mean"
    for one in sought:
        yield from _seed_notes(plan, job, one)


def _seed_notes(plan: SearchPlan, job: Job, one: Sought) -> Iterator[str]:
    for load in one.found.beyond:
        yield (
            f"seed {one.seed}: {load:g} {plan.unit} meets the objectives too, although "
            f"{one.found.high:g} does not"
        )
    if one.found.at_least:
        yield f"the largest load tried meets them ({one.found.low:g} {plan.unit}): at least that"
    high, low = one.at(one.found.high), one.at(one.found.low)
    if high is not None and judge(plan, high.result).worst == TOO_SHORT:
        yield (
            f"seed {one.seed}: at {one.found.high:g} {plan.unit} {high.result.requests} requests "
            "are too few to be steady; capacity.max_requests takes more"
        )
    if low is None:
        return
    for kind in ("modelled", "clamped"):
        if low.result.shares[kind] > MUCH:
            yield f"more than {MUCH:.0%} of step time is {kind}"
    cap = job.settings.capacity
    if plan.of != CLIENTS and low.result.most_running >= cap:
        yield f"{cap} requests at most ran at once (max_concurrency, server.max_num_seqs)"
