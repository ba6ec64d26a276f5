"""What a search prints: a line for each seed, the answer, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.capacity.answer import Answer
from simulator.capacity.options import Plan
from simulator.capacity.seek import Sought
from simulator.capacity.trial import Trial
from simulator.capacity.verdict import judge

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
