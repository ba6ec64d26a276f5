"""The answer over all seeds, and what a reader must know about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from simulator.engine.run import Job
from simulator.results.summary import what_if_reason
from simulator.studies.capacity.plan import CLIENTS, Plan
from simulator.studies.capacity.seek import Sought
from simulator.studies.capacity.trial import Trial
from simulator.studies.capacity.verdict import TOO_SHORT, judge
from traces.common.intervals import LEVEL, Interval, t_quantile

MUCH = 0.1  # of step time beyond what was measured, from where on it is said


@dataclass(frozen=True, slots=True)
class Answer:
    """The capacity by its mean over seeds; None where a seed has none."""

    capacity: Interval | None  # 95 % over seeds
    seeds: int
    met: int  # seeds that have an answer
    at_least: bool  # whether for a seed nothing larger was tried
    best: Trial | None  # nearest to the objectives, where no seed has an answer


def over_seeds(values: Sequence[float]) -> Interval:
    """The mean of (n,) values and its 95 % interval by Student's t; one value has none."""
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    half = t_quantile(len(values) - 1, LEVEL) * stdev(values) / sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def answer_of(plan: Plan, sought: Sequence[Sought]) -> Answer:
    """The answer of all seeds together."""
    values = [one.found.low for one in sought if one.found.low is not None]
    whole = len(values) == len(sought)
    return Answer(
        capacity=_positive(over_seeds(values)) if whole else None,
        seeds=len(sought),
        met=len(values),
        at_least=whole and any(one.found.at_least for one in sought),
        best=None if values else _best(plan, sought),
    )


def _positive(found: Interval) -> Interval:
    """No load is below 0, whatever Student's t says of two seeds that are far apart."""
    return Interval(found.value, None if found.low is None else max(found.low, 0.0), found.high)


def _best(plan: Plan, sought: Sequence[Sought]) -> Trial:
    """The trial that misses by least: by the share that meets all, or by the worst ratio."""
    trials = [trial for one in sought for trial in one.trials.values()]

    def miss(trial: Trial) -> float:
        if plan.attained is not None:
            return -trial.attained
        levels = trial.levels_ms.items()
        return max((ms / plan.limits[name] for name, ms in levels if ms is not None), default=0.0)

    return min(trials, key=lambda trial: (trial.growing, miss(trial)))


def notes(plan: Plan, job: Job, sought: Sequence[Sought], answer: Answer) -> list[str]:
    """What the numbers rest on, in a line each."""
    return list(dict.fromkeys(_notes(plan, job, sought, answer)))


def _notes(plan: Plan, job: Job, sought: Sequence[Sought], answer: Answer) -> Iterator[str]:
    reason = what_if_reason(job)
    if reason is not None:
        yield f"what-if: {reason}"
    if "ttft" in plan.limits and job.cost.prefill == "none":
        yield "prefill is free with this profile: TTFT is the queue's alone"
    if 0 < answer.met < answer.seeds:
        yield f"{answer.met} of {answer.seeds} seeds meet the objectives at some load, so no mean"
    for one in sought:
        yield from _seed_notes(plan, job, one)


def _seed_notes(plan: Plan, job: Job, one: Sought) -> Iterator[str]:
    for load in one.found.beyond:
        yield (
            f"seed {one.seed}: {load:g} {plan.unit} meets the objectives too, although "
            f"{one.found.high:g} does not"
        )
    if one.found.at_least:
        yield f"the largest load tried meets them ({one.found.low:g} {plan.unit}): at least that"
    high = one.at(one.found.high)
    if high is not None and judge(plan, high).worst == TOO_SHORT:
        yield (
            f"seed {one.seed}: at {one.found.high:g} {plan.unit} {high.requests} requests are too "
            "few to be steady; capacity.max_requests takes more"
        )
    low = one.at(one.found.low)
    if low is None:
        return
    for kind in ("modelled", "clamped"):
        if low.shares[kind] > MUCH:
            yield f"more than {MUCH:.0%} of step time is {kind}"
    cap = job.settings.capacity
    if plan.of != CLIENTS and low.most_running >= cap:
        yield f"{cap} requests at most ran at once (max_concurrency, server.max_num_seqs)"
