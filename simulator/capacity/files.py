"""`capacity.json`, the answer, and `capacity.csv`, a line for each trial."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.capacity.answer import Answer
from simulator.capacity.options import Plan
from simulator.capacity.seek import Sought
from simulator.capacity.trial import Trial
from simulator.capacity.verdict import judge
from simulator.load_policy import policy_name
from simulator.results import write_files
from simulator.run import Job
from simulator.summary import latency_facts, plain, trace_facts, what_if_reason
from traces.bootstrap import Interval

CSV, JSON = "capacity.csv", "capacity.json"
FORMAT, VERSION = "specdec-capacity", 1


def write(
    folder: Path, plan: Plan, job: Job, sought: Sequence[Sought], answer: Answer, said: list[str]
) -> None:
    """Both files, or neither."""
    text = json.dumps(_report(plan, job, sought, answer, said), indent=2, allow_nan=False) + "\n"
    lines = list(_lines(plan, sought))
    write_files(
        folder,
        {
            CSV: lambda path: _write_csv(path, lines),
            JSON: lambda path: path.write_text(text, encoding="utf-8"),
        },
    )


def _report(plan, job: Job, sought, answer: Answer, said: list[str]) -> dict[str, Any]:
    what_if = what_if_reason(job)
    return {
        "format": FORMAT,
        "version": VERSION,
        "policy": policy_name(job.config["policy"]),
        "policy_config": {
            k: v for k, v in job.config["policy"].items() if k != "name" and k[0] != "_"
        },
        "trace": trace_facts(job),
        "latency": latency_facts(job),
        "server": plain(asdict(job.settings.server)),
        "workload": plain(asdict(job.settings.workload)),
        "what_if": what_if is not None,
        "what_if_reason": what_if,
        "of": plan.of,
        "unit": plan.unit,
        "max_concurrency": None if plan.whole else job.settings.max_concurrency,
        "burstiness": job.settings.burstiness,
        "objectives_ms": dict(plan.limits),
        "percentile": plan.percentile if plan.attained is None else None,
        "attained": plan.attained,
        "tolerance": plan.tolerance,
        "capacity": None if answer.capacity is None else answer.capacity.value,
        **_interval(answer.capacity),
        "at_least": answer.at_least,
        "seeds_met": answer.met,
        "seeds": [_seed(plan, one) for one in sought],
        "best_seen": None if answer.best is None else _trial(plan, answer.best),
        "notes": said,
    }


def _interval(found: Interval | None) -> dict[str, float | None]:
    """95 % over seeds."""
    low, high = (None, None) if found is None else (found.low, found.high)
    return {"capacity_low": low, "capacity_high": high}


def _seed(plan: Plan, one: Sought) -> dict[str, Any]:
    found = one.found
    low, high = one.at(found.low), one.at(found.high)
    both = found.low is not None and found.high is not None
    return {
        "seed": one.seed,
        "capacity": found.low,
        "at_least": found.at_least,
        "not_met_at": found.high,
        "resolution": (found.high - found.low) / found.low if both else None,
        "binding": None if high is None else judge(plan, high).worst,
        "met_beyond": list(found.beyond),
        "trials": len(one.trials),
        "at_capacity": None if low is None else _trial(plan, low),
    }


def _trial(plan: Plan, trial: Trial) -> dict[str, Any]:
    verdict = judge(plan, trial)
    return {
        "load": trial.load,
        "seed": trial.seed,
        "met": verdict.met,
        "failed": list(verdict.failed),
        "requests": trial.requests,
        "judged": trial.judged,
        "rejected": trial.rejected,
        "seconds": trial.seconds,
        "levels_ms": trial.levels_ms,
        "missed": trial.missed,
        "attained": trial.attained,
        "request_throughput": trial.request_throughput,
        "output_throughput": trial.output_throughput,
        "request_goodput": trial.goodput,
        "most_running": trial.most_running,
        "cost_shares": trial.shares,
    }


def _lines(plan: Plan, sought: Sequence[Sought]) -> Iterator[dict[str, Any]]:
    """By seed, then load."""
    for one in sought:
        for load in sorted(one.trials):
            trial = one.trials[load]
            verdict = judge(plan, trial)
            yield {
                "seed": one.seed,
                plan.of: load,
                "met": str(verdict.met).lower(),
                "failed": "+".join(verdict.failed),
                "requests": trial.requests,
                "judged": trial.judged,
                "rejected": trial.rejected,
                "seconds": trial.seconds,
                "mean_e2el_s": trial.stay_s,
                "growth_s_per_s": trial.growth,
                **{f"p{plan.percentile:g}_{k}_ms": v for k, v in trial.levels_ms.items()},
                **{f"missed_{name}": share for name, share in trial.missed.items()},
                "attained": trial.attained,
                "request_throughput": trial.request_throughput,
                "output_throughput": trial.output_throughput,
                "request_goodput": trial.goodput,
                "most_running": trial.most_running,
                **{f"share_{name}": share for name, share in trial.shares.items()},
            }


def _write_csv(path: Path, lines: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")  # every seed tries a load
        writer.writeheader()
        writer.writerows(lines)
