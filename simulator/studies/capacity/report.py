"""`capacity.json`, the answer, and `capacity.csv`, a line for each trial; the same printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simulator.policies.loading import policy_name
from simulator.studies.capacity.answer import CapacityAnswer
from simulator.studies.capacity.plan import SearchPlan
from simulator.studies.capacity.search import Sought
from simulator.studies.capacity.trial import Trial, judge
from simulator.studies.report import (
    csv_text,
    digits,
    ends,
    job_facts,
    json_text,
    policy_settings,
    write_texts,
)
from traces.common.table import BLANK, Table

CSV, JSON = "capacity.csv", "capacity.json"
FORMAT, VERSION = "specdec-capacity", 1


def write(folder: Path, answer: CapacityAnswer) -> None:
    """Both files, or neither."""
    lines = list(_lines(answer))
    write_texts(folder, {CSV: csv_text(lines), JSON: json_text(_report(answer))})


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
        "capacity": None if answer.capacity is None else answer.capacity.value,
        **ends("capacity", answer.capacity),
        "at_least": answer.at_least,
        "seeds_met": answer.met,
        "seeds": [_seed(plan, one) for one in answer.sought],
        "best_seen": None if answer.best is None else _trial(plan, answer.best),
        "notes": list(answer.notes),
    }


def _seed(plan: SearchPlan, one: Sought) -> dict[str, Any]:
    found = one.found
    low, high = one.at(found.low), one.at(found.high)
    both = found.low is not None and found.high is not None
    return {
        "seed": one.seed,
        "capacity": found.low,
        "at_least": found.at_least,
        "not_met_at": found.high,
        "resolution": (found.high - found.low) / found.low if both else None,
        "binding": None if high is None else judge(plan, high.result).worst,
        "met_beyond": list(found.beyond),
        "trials": len(one.trials),
        "at_capacity": None if low is None else _trial(plan, low),
    }


def _trial(plan: SearchPlan, trial: Trial) -> dict[str, Any]:
    result, verdict = trial.result, judge(plan, trial.result)
    return {
        "load": trial.load,
        "seed": trial.seed,
        "met": verdict.met,
        "failed": list(verdict.failed),
        **_counts(trial),
        "seconds": result.seconds,
        "levels_ms": _levels(plan, trial),
        "missed": result.missed,
        **_rates(trial),
        "cost_shares": result.shares,
    }


def _lines(answer: CapacityAnswer) -> Iterator[dict[str, Any]]:
    """By seed, then load."""
    plan = answer.plan
    for trial in (one.trials[load] for one in answer.sought for load in sorted(one.trials)):
        result, verdict = trial.result, judge(plan, trial.result)
        level = f"p{plan.asked.percentile:g}"
        yield {
            "seed": trial.seed,
            plan.of: trial.load,
            "met": str(verdict.met).lower(),
            "failed": "+".join(verdict.failed),
            **_counts(trial),
            "seconds": result.seconds,
            "mean_e2el_s": result.stay_s,
            "growth_s_per_s": result.growth,
            **{f"{level}_{name}_ms": ms for name, ms in _levels(plan, trial).items()},
            **{f"missed_{name}": share for name, share in result.missed.items()},
            **_rates(trial),
            **{f"share_{name}": share for name, share in result.shares.items()},
        }


def _counts(trial: Trial) -> dict[str, int]:
    result = trial.result
    return {
        "requests": result.requests,
        "judged": result.to_judge,
        "rejected": result.rejected,
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


def print_capacity(answer: CapacityAnswer) -> None:
    """The table, notes, and the answer in a line."""
    _table(answer).emit("table")
    for note in answer.notes:
        print(f"note: {note}")
    print(in_words(answer))


def _table(answer: CapacityAnswer) -> Table:
    plan = answer.plan
    limits = " ".join(f"{name}:{limit:g}" for name, limit in plan.limits.items())
    policy = policy_name(answer.job.config["policy"])
    levels = [f"p{plan.asked.percentile:g} {name} (ms)" for name in plan.limits]
    heads = ["seed", plan.unit, "not met at", *levels, "attained", "tokens/s", "modelled"]
    heads += ["clamped", "what fails then"]
    return Table(
        heads,
        [_row(plan, one) for one in answer.sought],
        caption=f"{policy}: largest {plan.of} with {plan.rule} ({limits} ms)",
        align="l" + "r" * (len(heads) - 2) + "l",
    )


def _row(plan: SearchPlan, one: Sought) -> list[str]:
    high, low = one.at(one.found.high), one.at(one.found.low)
    fails = BLANK if high is None else judge(plan, high.result).worst
    shown = [BLANK if load is None else f"{load:.5g}" for load in (one.found.low, one.found.high)]
    return [str(one.seed), *shown, *_at_answer(plan, low), fails]


def _at_answer(plan: SearchPlan, trial: Trial | None) -> list[str]:
    if trial is None:
        return [BLANK] * (len(plan.limits) + 4)
    result = trial.result
    levels = [digits(ms, 1) for ms in _levels(plan, trial).values()]
    shares = [f"{result.shares[kind]:.0%}" for kind in ("modelled", "clamped")]
    return [*levels, f"{result.attained:.4f}", digits(result.output_throughput, 1), *shares]


def in_words(answer: CapacityAnswer) -> str:
    """The answer in a line."""
    plan, found, seeds = answer.plan, answer.capacity, len(answer.sought)
    if found is None and answer.best is not None:
        best = answer.best
        failed = ", ".join(judge(plan, best.result).failed)
        share = best.result.attained
        seen = f"at {best.load:g} {plan.unit} {share:.1%} of requests meet theirs"
        return f"capacity: none, no load tried meets the objectives; nearest: {seen} ({failed})"
    if found is None:
        return f"capacity: none, {answer.met} of {seeds} seeds meet the objectives"
    least = "at least " if answer.at_least else ""
    text = f"capacity: {least}{found.value:.4g} {plan.unit}"
    if found.low is not None:
        text += f" (95 % interval over {seeds} seeds {found.low:.4g} to {found.high:.4g})"
    return text
