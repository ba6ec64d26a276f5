"""What a tournament prints: a table for each deployment, geometric means, the worst cells."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.tournament.plan import Plan
from simulator.tournament.standings import REPORT, Everywhere, Overall, Versus
from traces.bootstrap import Interval

WORST = 5  # cells listed
WIDTH = 160  # of output that is no terminal
MARGIN = 0.99  # of non-inferiority


def print_tournament(
    plan: Plan,
    cells: Sequence[Versus],
    overall: Sequence[Overall],
    everywhere: Sequence[Everywhere],
) -> None:
    """Ratios are candidate over the best other, tokens per second, with 95 % intervals."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    harsh = [one for one in cells if one.best_by == REPORT]
    for deployment in plan.deployments:
        own = [one for one in harsh if one.cell.deployment is deployment]
        console.print(
            Text(f"\n{deployment.trace} on {deployment.profile}: {plan.candidate.policy} / ")
            + Text("best tuned other of the cell itself, tokens per second")
        )
        console.print(_cells(plan, own))
        console.print(_overall([one for one in overall if one.deployment is deployment]))
    console.print(_legend(harsh), style="dim")
    console.print(_worst(harsh))
    console.print(_everywhere(everywhere))
    console.print(_summary(harsh))


def _cells(plan: Plan, cells: Sequence[Versus]) -> Table:
    table = Table("domain", box=None, pad_edge=False)
    for concurrency in plan.concurrency:
        table.add_column(str(concurrency), justify="right")
    for domain in dict.fromkeys(one.cell.domain for one in cells):
        row = {one.cell.concurrency: one for one in cells if one.cell.domain == domain}
        table.add_row(domain, *(_ratio(row[k]) for k in plan.concurrency))
    return table


def _ratio(one: Versus) -> str:
    return f"{one.ratio.value:.3f}{_sign(one.ratio)}{'m' if one.beyond_table else ' '}"


def _sign(ratio: Interval) -> str:
    """Which side of 1 the interval is on."""
    if ratio.low is None or ratio.low <= 1 <= ratio.high:
        return " "
    return "+" if ratio.low > 1 else "-"


def _legend(cells: Sequence[Versus]) -> str:
    text = "+ and -: the 95 % interval over prompts is above or below 1"
    if any(one.beyond_table for one in cells):
        text += "; m: steps of either lie beyond the measured table"
    return text


def _overall(lines: Sequence[Overall]) -> Table:
    columns = ("geometric mean over", "other", "chosen on", "ratio", "95 % interval", "worst")
    table = Table(*columns, "which", box=None, pad_edge=False)
    for one in lines:
        ratio = f"{one.ratio.value:.3f}"
        row = (one.cells, one.against, one.best_by, ratio, _range(one.ratio), f"{one.worst:.3f}")
        table.add_row(*row, one.other)
    return table


def _worst(cells: Sequence[Versus]) -> Table:
    table = Table("worst cells", "ratio", "95 % interval", "other", box=None, pad_edge=False)
    for one in sorted(cells, key=lambda one: one.ratio.value)[:WORST]:
        cell = one.cell
        where = f"{cell.deployment.profile}, {cell.deployment.trace}, {cell.domain}"
        name = f"{one.other.policy} {one.other.setting}"
        ratio = f"{one.ratio.value:.3f}"
        table.add_row(f"{where}, concurrency {cell.concurrency}", ratio, _range(one.ratio), name)
    return table


def _everywhere(lines: Sequence[Everywhere]) -> Table:
    table = Table("rival, tuned per load", "cells", "ratio", "worst", box=None, pad_edge=False)
    for one in lines:
        table.add_row(one.other, str(one.cells), f"{one.ratio:.3f}", f"{one.worst:.3f}")
    return table


def _summary(cells: Sequence[Versus]) -> str:
    """Of the cells' ratios to the best other of each."""
    values = [one.ratio.value for one in cells]
    below = sum(_sign(one.ratio) == "-" for one in cells)
    return (
        f"best other of every cell: geometric mean {geometric_mean(values):.3f}, {min(values):.3f} "
        f"to {max(values):.3f}; of {len(values)} cells {sum(v < 1 for v in values)} below 1 "
        f"({below} with the interval), {sum(v < MARGIN for v in values)} below {MARGIN:g}"
    )


def _range(ratio: Interval) -> str:
    return "-" if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}"
