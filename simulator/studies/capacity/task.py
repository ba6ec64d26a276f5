"""`task=capacity`: search, then write and print the answer over all seeds.

`capacity.json` is the answer, `capacity.csv` has a line for each trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.engine.run import Job
from simulator.policies.loading import policy_name
from simulator.results.summary import what_if_reason
from simulator.studies.capacity.plan import CLIENTS, SearchPlan, read_plan
from simulator.studies.capacity.search import Sought, seek
from simulator.studies.capacity.trial import TOO_SHORT, Trial
from simulator.studies.report import (
    MUCH,
    csv_text,
    digits,
    job_facts,
    json_text,
    policy_settings,
    with_ends,
    write_texts,
)
from simulator.studies.store import Store
from traces.common.intervals import Interval, over_seeds
from traces.common.table import BLANK, Table

CSV, JSON = "capacity.csv", "capacity.json"
FORMAT, VERSION = "specdec-capacity", 1
SHARES = ("modelled", "clamped")

load = read_plan


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


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Search, print, and write `capacity.json` and `capacity.csv` into `folder`.

    Every trial is in `capacity.jsonl` there at once; what it holds is not run again.

    Raises:
        InputError: see `read_plan`; what the policy refuses.
    """
    plan = read_plan(cfg)
    with Store(folder, "capacity") as store:
        sought, played = seek(plan, store)
    answer = answer_of(plan, plan.job(), sought)
    trials = (one.trials[load] for one in sought for load in sorted(one.trials))
    lines = [_line(plan, trial) for trial in trials]
    write_texts(folder, {CSV: csv_text(lines), JSON: json_text(_report(answer))})
    _table(answer).emit("table")
    for note in answer.notes:
        print(f"note: {note}")
    print(_in_words(answer))
    store.say_done(played, "runs", folder / JSON)


def answer_of(plan: SearchPlan, job: Job, sought: Sequence[Sought]) -> CapacityAnswer:
    """The answer of all seeds together."""
    values = [one.found.low for one in sought if one.found.low is not None]
    whole, capacity = len(values) == len(sought), None
    if whole:  # no load is below 0, whatever Student's t says of two seeds that are far apart
        found = over_seeds(values)
        low = None if found.low is None else max(found.low, 0.0)
        capacity = Interval(found.value, low, found.high)
    return CapacityAnswer(
        plan=plan,
        job=job,
        sought=sought,
        capacity=capacity,
        met=len(values),
        at_least=whole and any(one.found.at_least for one in sought),
        best=None if values else _best(plan, sought),
        notes=tuple(dict.fromkeys(_notes(plan, job, sought, len(values)))),
    )


def _best(plan: SearchPlan, sought: Sequence[Sought]) -> Trial:
    """The trial that misses by least: by the share that meets all, or by the worst ratio."""
    trials = [trial for one in sought for trial in one.trials.values()]

    def miss(trial: Trial) -> float:
        if plan.asked.attained is not None:
            return -trial.result.attained
        levels = _levels(plan, trial)
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
    if one.high is not None and one.high.worst == TOO_SHORT:
        yield (
            f"seed {one.seed}: at {one.found.high:g} {plan.unit} {one.high.result.requests} "
            "requests are too few to be steady; capacity.max_requests takes more"
        )
    if one.low is None:
        return
    for kind in SHARES:
        if one.low.result.shares[kind] > MUCH:
            yield f"more than {MUCH:.0%} of step time is {kind}"
    cap = job.settings.capacity
    if plan.of != CLIENTS and one.low.result.most_running >= cap:
        yield f"{cap} requests at most ran at once (max_concurrency, server.max_num_seqs)"


def _report(answer: CapacityAnswer) -> dict[str, Any]:
    plan, job = answer.plan, answer.job
    asked, policy = plan.asked, job.config["policy"]
    return {
        "format": FORMAT,
        "version": VERSION,
        "policy": policy_name(policy),
        "policy_config": policy_settings(policy),
        **job_facts(job),
        "of": plan.of,
        "unit": plan.unit,
        "max_concurrency": None if plan.whole else job.settings.max_concurrency,
        "burstiness": job.settings.burstiness,
        "objectives_ms": dict(plan.limits),
        "percentile": asked.percentile if asked.attained is None else None,
        "attained": asked.attained,
        "tolerance": asked.tolerance,
        **with_ends("capacity", answer.capacity),
        "at_least": answer.at_least,
        "seeds_met": answer.met,
        "seeds": [_seed(plan, one) for one in answer.sought],
        "best_seen": None if answer.best is None else _trial(plan, answer.best),
        "notes": list(answer.notes),
    }


def _seed(plan: SearchPlan, one: Sought) -> dict[str, Any]:
    found = one.found
    both = found.low is not None and found.high is not None
    return {
        "seed": one.seed,
        "capacity": found.low,
        "at_least": found.at_least,
        "not_met_at": found.high,
        "resolution": (found.high - found.low) / found.low if both else None,
        "binding": None if one.high is None else one.high.worst,
        "met_beyond": list(found.beyond),
        "trials": len(one.trials),
        "at_capacity": None if one.low is None else _trial(plan, one.low),
    }


def _trial(plan: SearchPlan, trial: Trial) -> dict[str, Any]:
    return {
        "load": trial.load,
        "seed": trial.seed,
        "met": trial.met,
        "failed": list(trial.failed),
        **_counts(trial),
        "levels_ms": _levels(plan, trial),
        "missed": trial.result.missed,
        **_rates(trial),
        "cost_shares": trial.result.shares,
    }


def _line(plan: SearchPlan, trial: Trial) -> dict[str, Any]:
    result, level = trial.result, f"p{plan.asked.percentile:g}"
    return {
        "seed": trial.seed,
        plan.of: trial.load,
        "met": str(trial.met).lower(),
        "failed": "+".join(trial.failed),
        **_counts(trial),
        "mean_e2el_s": result.stay_s,
        "growth_s_per_s": result.growth,
        **{f"{level}_{name}_ms": ms for name, ms in _levels(plan, trial).items()},
        **{f"missed_{name}": share for name, share in result.missed.items()},
        **_rates(trial),
        **{f"share_{name}": share for name, share in result.shares.items()},
    }


def _counts(trial: Trial) -> dict[str, Any]:
    result = trial.result
    return {
        "requests": result.requests,
        "judged": result.to_judge,
        "rejected": result.rejected,
        "seconds": result.seconds,
    }


def _rates(trial: Trial) -> dict[str, Any]:
    result = trial.result
    return {
        "attained": result.attained,
        "request_throughput": result.request_throughput,
        "output_throughput": result.output_throughput,
        "request_goodput": result.goodput,
        "most_running": result.most_running,
    }


def _levels(plan: SearchPlan, trial: Trial) -> dict[str, float | None]:
    return {name: trial.result.levels_ms[name] for name in plan.limits}


def _table(answer: CapacityAnswer) -> Table:
    plan = answer.plan
    limits = " ".join(f"{name}:{limit:g}" for name, limit in plan.limits.items())
    policy = policy_name(answer.job.config["policy"])
    levels = [f"p{plan.asked.percentile:g} {name} (ms)" for name in plan.limits]
    heads = ["seed", plan.unit, "not met at", *levels, "attained", "tokens/s", *SHARES]
    heads += ["what fails then"]
    rows = []
    for one in answer.sought:
        loads = (one.found.low, one.found.high)
        row = [str(one.seed), *(BLANK if load is None else f"{load:.5g}" for load in loads)]
        if one.low is None:
            row += [BLANK] * (len(plan.limits) + 2 + len(SHARES))
        else:
            result = one.low.result
            row += [digits(ms, 1) for ms in _levels(plan, one.low).values()]
            row += [f"{result.attained:.4f}", digits(result.output_throughput, 1)]
            row += [f"{result.shares[kind]:.0%}" for kind in SHARES]
        rows.append([*row, BLANK if one.high is None else one.high.worst])
    return Table(
        heads,
        rows,
        caption=f"{policy}: largest {plan.of} with {plan.rule} ({limits} ms)",
        align="l" + "r" * (len(heads) - 2) + "l",
    )


def _in_words(answer: CapacityAnswer) -> str:
    """The answer in a line."""
    plan, found, best, seeds = answer.plan, answer.capacity, answer.best, len(answer.sought)
    if best is not None:
        seen = f"at {best.load:g} {plan.unit} {best.result.attained:.1%} of requests meet theirs"
        return (
            "capacity: none, no load tried meets the objectives; "
            f"nearest: {seen} ({', '.join(best.failed)})"
        )
    if found is None:
        return f"capacity: none, {answer.met} of {seeds} seeds meet the objectives"
    least = "at least " if answer.at_least else ""
    text = f"capacity: {least}{found.value:.4g} {plan.unit}"
    if found.low is not None:
        text += f" (95 % interval over {seeds} seeds {found.low:.4g} to {found.high:.4g})"
    return text
