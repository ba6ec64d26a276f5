"""`tournament.csv`, a line for each cell and rule, and the means of it: over a deployment's cells,
and over all cells by rival.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.engine.run import Job
from simulator.results.files import write_files
from simulator.results.summary import latency_facts, plain, trace_facts, what_if_reason
from simulator.studies.contest.plan import Plan, RecommendPlan
from simulator.studies.contest.scores import InDomain, in_domains
from simulator.studies.contest.standings import REPORT, Everywhere, Overall, Versus
from simulator.studies.contest.tuning import Place, Ranking
from traces.common.intervals import Interval

CELLS, OVERALL = "tournament.csv", "tournament_overall.csv"
RIVALS = "tournament_rivals.csv"


def write_tables(
    folder: Path,
    plan: Plan,
    cells: Sequence[Versus],
    overall: Sequence[Overall],
    everywhere: Sequence[Everywhere],
) -> None:
    """All files; units are in the columns' names, ratios are candidate over other."""
    tables = {
        CELLS: [_cell(plan, one) for one in cells],
        OVERALL: [_overall(plan, one) for one in overall],
        RIVALS: [{"candidate": plan.candidate.policy, **asdict(one)} for one in everywhere],
    }
    write_files(folder, {name: _writer(rows) for name, rows in tables.items()})


def _writer(rows: list[dict[str, Any]]):
    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    return write


def _cell(plan: Plan, one: Versus) -> dict[str, Any]:
    cell, ours, theirs = one.cell, one.candidate, one.score
    return {
        "profile": cell.deployment.profile,
        "trace": cell.deployment.trace,
        "domain": cell.domain,
        "max_concurrency": cell.concurrency,
        "candidate": plan.candidate.policy,
        "candidate_tokens_per_s": ours.tokens_s,
        "best_other_by_split": one.best_by,
        "other": one.other.policy,
        "other_setting": one.other.setting,
        "other_tokens_per_s": theirs.tokens_s,
        "ratio": one.ratio.value,
        "ratio_low": one.ratio.low,
        "ratio_high": one.ratio.high,
        "prompts": ours.prompts,
        "candidate_nodes_per_request": ours.nodes_per_request,
        "other_nodes_per_request": theirs.nodes_per_request,
        "candidate_share_modelled": ours.modelled,
        "other_share_modelled": theirs.modelled,
        "candidate_share_clamped": ours.clamped,
        "other_share_clamped": theirs.clamped,
        "beyond_table": str(one.beyond_table).lower(),
    }


def _overall(plan: Plan, one: Overall) -> dict[str, Any]:
    return {
        "profile": one.deployment.profile,
        "trace": one.deployment.trace,
        "cells": one.cells,
        "candidate": plan.candidate.policy,
        "against": one.against,
        "best_other_by_split": one.best_by,
        "other": one.other,
        "ratio": one.ratio.value,
        "ratio_low": one.ratio.low,
        "ratio_high": one.ratio.high,
        "worst_ratio": one.worst,
    }


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
        console.print(_overall_of_show([one for one in overall if one.deployment is deployment]))
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


def _overall_of_show(lines: Sequence[Overall]) -> Table:
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


# ---------------- `recommend.json`, everything, and `recommend.md`, the same to be read.


JSON, MARKDOWN = "recommend.json", "recommend.md"
FORMAT, VERSION = "specdec-recommendation", 1


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, and how it is told."""

    plan: RecommendPlan
    job: Job  # any of the runs, for what all of them share
    rankings: tuple[Ranking, ...]
    chosen: Ranking
    notes: tuple[str, ...]
    command: str  # that runs the recommended policy at that load, once for each seed

    @property
    def several_domains(self) -> bool:
        return len(self.domains(self.chosen.best)) > 1

    def domains(self, place: Place) -> list[InDomain]:
        """A policy's numbers by domain."""
        recording = self.job.recording
        domain_of = recording["domain"][place.score.sequences]
        return in_domains(place.score, domain_of, recording.domains)


def write(folder: Path, report: Report, text: str) -> None:
    """Both files, or neither; `text` is the Markdown."""
    data = json.dumps(as_json(report), indent=2, allow_nan=False) + "\n"
    write_files(
        folder,
        {
            MARKDOWN: lambda path: path.write_text(text, encoding="utf-8"),
            JSON: lambda path: path.write_text(data, encoding="utf-8"),
        },
    )


def as_json(report: Report) -> dict[str, Any]:
    """All numbers; those of a ranking are of the report split."""
    plan, job, settings = report.plan, report.job, report.plan.settings
    what_if = what_if_reason(job)
    rate = "inf" if settings.closed_loop else plain(settings.request_rate)
    return {
        "format": FORMAT,
        "version": VERSION,
        "trace": trace_facts(job),
        "latency": latency_facts(job),
        "server": settings.server.model_dump(),
        "workload": settings.workload.model_dump(),
        "what_if": what_if is not None,
        "what_if_reason": what_if,
        "request_rate": rate,
        "burstiness": settings.burstiness,
        "objectives_ms": None if plan.limits is None else dict(plan.limits),
        "attained_from": plan.attained,
        "ranked_by": plan.measure,
        "split_tune": plan.split_tune,
        "split_report": plan.split_report,
        "tuning_seeds": list(plan.tuning_seeds),
        "seeds": list(plan.seeds),
        "resamples": plan.resamples,
        "num_gpus": plan.num_gpus,
        "recommended": _recommended(report),
        "loads": [_load(report, ranking) for ranking in report.rankings],
        "notes": list(report.notes),
    }


def _recommended(report: Report) -> dict[str, Any]:
    chosen = report.chosen
    place = _place(report, chosen.best)
    return {
        "max_concurrency": chosen.concurrency,
        **place,
        "per_gpu": place["value"] / report.plan.num_gpus,
        "indistinguishable": [one.policy for one in chosen.same],
        "command": report.command,
    }


def _load(report: Report, ranking: Ranking) -> dict[str, Any]:
    return {
        "max_concurrency": ranking.concurrency,
        "best": ranking.best.policy,
        "indistinguishable": [one.policy for one in ranking.same],
        "policies": [_place(report, place) for place in ranking.places],
    }


def _place(report: Report, place: Place) -> dict[str, Any]:
    score, ratio = place.score, place.ratio
    entrant = score.entrant
    return {
        "policy": entrant.policy,
        "setting": entrant.setting,
        "policy_config": {
            k: plain(v) for k, v in entrant.node.items() if k != "name" and k[0] != "_"
        },
        "value": score.value,
        **_ends("prompts", score.over_prompts),
        **_ends("seeds", score.over_seeds),
        "by_seed": score.values,
        "output_throughput": score.tokens_s,
        "attained": score.attained if report.plan.limits else None,
        "meets": place.meets,
        "ratio_to_best": _finite(ratio.over_prompts.value),
        **_ends("ratio_prompts", ratio.over_prompts),
        **_ends("ratio_seeds", ratio.over_seeds),
        **{f"p99_{name}_ms": score.level_ms(name) for name in ("ttft", "tpot", "e2el")},
        "draft_nodes_per_request": score.mean("nodes"),
        "share_modelled": score.mean("modelled"),
        "share_clamped": score.mean("clamped"),
        "by_domain": [_domain(one) for one in report.domains(place)],
    }


def _domain(one: InDomain) -> dict[str, Any]:
    return {
        "domain": one.domain,
        "prompts": one.prompts,
        "tokens_per_s_of_a_request": one.speed.value,
        **_ends("tokens_per_s_of_a_request", one.speed),
        "attained": one.attained if one.attained == one.attained else None,  # none was judged
    }


def _ends(name: str, found: Interval) -> dict[str, float | None]:
    """A 95 % interval."""
    return {f"{name}_low": _finite(found.low), f"{name}_high": _finite(found.high)}


def _finite(value: float | None) -> float | None:
    return None if value is None or not abs(value) < float("inf") else value


# ---------------- Headings and rows, the same on the terminal and in Markdown.


def table(report: Report, ranking: Ranking) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a ranking, as they are printed and written."""
    plan = report.plan
    headings = ["policy", "setting", plan.unit, "over prompts", "over seeds", "to the best"]
    if plan.limits is not None:
        headings += ["tokens/s", "attained"]
    headings += ["TPOT p99 (ms)", "nodes", "modelled", "clamped"]
    return headings, [_row(plan, ranking, place) for place in ranking.places]


def _row(plan: RecommendPlan, ranking: Ranking, place: Place) -> list[str]:
    score = place.score
    row = [
        place.policy,
        score.entrant.setting,
        number(score.value),
        span(score.over_prompts),
        span(score.over_seeds),
        _to_best(ranking, place),
    ]
    if plan.limits is not None:
        row += [number(score.tokens_s), f"{score.attained:.4f}{'' if place.meets else ' !'}"]
    nodes, tpot = score.mean("nodes"), score.level_ms("tpot")
    row += ["-" if tpot is None else f"{tpot:.2f}", "-" if nodes is None else f"{nodes:.1f}"]
    return [*row, f"{score.mean('modelled'):.0%}", f"{score.mean('clamped'):.0%}"]


def _to_best(ranking: Ranking, place: Place) -> str:
    if place is ranking.best:
        return "best"
    value = place.ratio.over_prompts.value
    return ("-" if value != value else f"{value:.3f}") + (" =" if place in ranking.same else "")


def number(value: float) -> str:
    """Four significant digits, or all of a large number."""
    return f"{value:.1f}" if value >= 1000 else f"{value:.4g}"


def span(found: Interval) -> str:
    """A 95 % interval."""
    if found.low is None or found.high is None:
        return "-"
    return f"{number(found.low)} to {number(found.high)}"


def per_load(report: Report, rankings: Sequence[Ranking]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: the best policy of every load."""
    plan = report.plan
    headings = ["max_concurrency", "policy", "setting", plan.unit, f"{plan.unit} per GPU", "met"]
    rows = [
        [
            str(one.concurrency),
            one.best.policy,
            one.best.score.entrant.setting,
            number(one.best.score.value),
            number(one.best.score.value / plan.num_gpus),
            "yes" if one.best.meets else "no",
        ]
        for one in rankings
    ]
    return headings, rows


def domains(report: Report) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: the recommended policy and the best of each domain."""
    found = {place.policy: report.domains(place) for place in report.chosen.places}
    own = found[report.chosen.best.policy]
    rows = []
    for index, one in enumerate(own):
        others = {name: parts[index] for name, parts in found.items() if len(parts) == len(own)}
        best = max(others, key=lambda name: others[name].speed.value)
        row = [one.domain, str(one.prompts), number(one.speed.value), span(one.speed)]
        if report.plan.limits is not None:
            row.append(f"{one.attained:.4f}")
        rows.append([*row, best, number(others[best].speed.value)])
    headings = ["domain", "prompts", "tokens/s of a request", "over prompts"]
    attained = [] if report.plan.limits is None else ["attained"]
    return [*headings, *attained, "fastest there", "tokens/s of a request"], rows


# ---------------- The recommendation in words: on the terminal, and as Markdown.


SHOWN_WIDTH = 170  # of output that is no terminal
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
        console.width = SHOWN_WIDTH
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
