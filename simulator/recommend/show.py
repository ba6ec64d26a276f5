"""The recommendation in words: on the terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.recommend.choose import Ranking
from simulator.recommend.files import Report
from simulator.recommend.tables import domains, number, per_load, span, table

WIDTH = 170  # of output that is no terminal
LEGEND = (
    "setting default: as in the policy's own file; intervals: 95 %; "
    "= cannot be told from the best, over prompts or over seeds; "
    "modelled, clamped: shares of step time"
)
TEXT = 2  # columns of a table that are no numbers


def print_report(report: Report) -> None:
    """The tables of all loads, notes, and the recommendation."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    for ranking in report.rankings:
        console.print(Text(f"\n{title(report, ranking)}"), style="bold")
        console.print(_drawn(*table(report, ranking)))
    console.print(Text(legend(report)), style="dim", soft_wrap=True)
    if len(report.rankings) > 1:
        console.print(_drawn(*per_load(report, report.rankings)))
    if report.several_domains:
        console.print(_drawn(*domains(report)))
    for note in report.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    console.print(Text(sentence(report)), soft_wrap=True)
    print(report.command)


def _drawn(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    drawn = Table(box=None, pad_edge=False)
    for index, heading in enumerate(headings):
        drawn.add_column(heading, justify="left" if index < TEXT else "right")
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn


def title(report: Report, ranking: Ranking) -> str:
    """The load of a table."""
    plan, settings = report.plan, report.plan.settings
    if settings.closed_loop:
        load = f"{ranking.concurrency} clients"
    else:
        load = f"{settings.request_rate:g} requests/s"
        if settings.workload.arrivals == "file":
            load = "the file's arrivals"
        if ranking.concurrency is not None:
            load += f", {ranking.concurrency} at once at most"
    limits = plan.limits or {}
    within = " ".join(f"{name}:{limit:g}" for name, limit in limits.items())
    recording, profile = report.job.config["trace"]["recording"], report.job.cost.profile.name
    seeds = ", ".join(map(str, plan.seeds))
    text = f"{recording} on {profile}, {load}, {plan.split_report} split, seeds {seeds}"
    return text + (f", within {within} ms" if within else "")


def legend(report: Report) -> str:
    """What the tables' signs mean."""
    plan = report.plan
    if plan.limits is None:
        return LEGEND
    text = f"{LEGEND}; ! below {plan.attained:g} attained"
    if not plan.settings.closed_loop:
        text += "; good requests/s: the rate at which requests come times the share attained"
    return text


def sentence(report: Report) -> str:
    """The recommendation, before its command line."""
    plan, chosen = report.plan, report.chosen
    score, entrant = chosen.best.score, chosen.best.score.entrant
    text = f"recommended: {entrant.policy} ({entrant.setting})"
    if len(plan.concurrency) > 1:
        text += f" at max_concurrency {chosen.concurrency}"
    text += f", {number(score.value)} {plan.unit} expected ({span(score.over_prompts)} over prompts"
    text += f", {span(score.over_seeds)} over seeds)"
    if chosen.same:
        text += "; not told from it: " + ", ".join(one.policy for one in chosen.same)
    return text + "; to run it:"


def markdown(report: Report) -> str:
    """The same as a file."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield "# Recommendation"
    yield from ("", sentence(report), "", "```bash", report.command, "```")
    if report.notes:
        yield ""
        yield from (f"- {note}" for note in report.notes)
    for ranking in report.rankings:
        yield from ("", f"## {title(report, ranking)}", "")
        yield from _grid(*table(report, ranking))
    yield from ("", legend(report))
    if len(report.rankings) > 1:
        yield from ("", "## By load", "")
        yield from _grid(*per_load(report, report.rankings))
    if report.several_domains:
        yield from ("", f"## {report.chosen.best.policy} by domain", "")
        yield from _grid(*domains(report))


def _grid(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield _line(headings)
    yield "|" + "|".join(" --- " if i < TEXT else " ---: " for i in range(len(headings))) + "|"
    yield from map(_line, rows)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
