"""`capacity.json`, the answer, and `capacity.csv`, a line for each trial."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.engine.run import Job
from simulator.policies.loading import policy_name
from simulator.results.files import write_files
from simulator.results.summary import latency_facts, trace_facts, what_if_reason
from simulator.studies.capacity.answer import Answer
from simulator.studies.capacity.plan import Plan
from simulator.studies.capacity.seek import Sought
from simulator.studies.capacity.trial import Trial
from simulator.studies.capacity.verdict import judge
from traces.common.intervals import Interval

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
        "server": job.settings.server.model_dump(),
        "workload": job.settings.workload.model_dump(),
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


WIDTH = 160  # of output that is no terminal


def print_capacity(
    plan: Plan, policy: str, sought: Sequence[Sought], answer: Answer, said: Sequence[str]
) -> None:
    """The table, the answer in a line, and notes."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    limits = " ".join(f"{name}:{limit:g}" for name, limit in plan.limits.items())
    title = f"\n{policy}: largest {plan.of} with {plan.rule} ({limits} ms)"
    console.print(Text(title), style="bold")
    console.print(_table(plan, sought))
    for note in said:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    console.print(Text(in_words(plan, answer)), soft_wrap=True)


def _table(plan: Plan, sought: Sequence[Sought]) -> Table:
    table = Table("seed", box=None, pad_edge=False)
    levels = [f"p{plan.percentile:g} {name} (ms)" for name in plan.limits]
    for heading in (plan.unit, "not met at", *levels, "attained", "tokens/s", "modelled"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("clamped", justify="right", no_wrap=True)
    table.add_column("what fails then", no_wrap=True)
    for one in sought:
        high = one.at(one.found.high)
        fails = "-" if high is None else judge(plan, high).worst
        low = one.at(one.found.low)
        shown = [_load(one.found.low), _load(one.found.high), *_numbers(plan, low)]
        table.add_row(str(one.seed), *shown, fails)
    return table


def _numbers(plan: Plan, trial: Trial | None) -> list[str]:
    """At the answer."""
    if trial is None:
        return ["-"] * (len(plan.limits) + 4)
    levels = [_number(trial.levels_ms[name], 1) for name in plan.limits]
    shares = [f"{trial.shares[kind]:.0%}" for kind in ("modelled", "clamped")]
    return [*levels, f"{trial.attained:.4f}", _number(trial.output_throughput, 1), *shares]


def in_words(plan: Plan, answer: Answer) -> str:
    """The answer in a line."""
    found, over = answer.capacity, f"over {answer.seeds} seeds"
    if found is None and answer.best is not None:
        best, failed = answer.best, ", ".join(judge(plan, answer.best).failed)
        seen = f"at {best.load:g} {plan.unit} {best.attained:.1%} of requests meet theirs"
        return f"capacity: none, no load tried meets the objectives; nearest: {seen} ({failed})"
    if found is None:
        return f"capacity: none, {answer.met} of {answer.seeds} seeds meet the objectives"
    least = "at least " if answer.at_least else ""
    text = f"capacity: {least}{found.value:.4g} {plan.unit}"
    if found.low is not None:
        text += f" (95 % interval {over} {found.low:.4g} to {found.high:.4g})"
    return text


def _load(load: float | None) -> str:
    return "-" if load is None else f"{load:.5g}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
