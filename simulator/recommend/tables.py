"""Headings and rows, the same on the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.recommend.choose import Place, Ranking
from simulator.recommend.files import Report
from simulator.recommend.options import Plan
from traces.bootstrap import Interval


def table(report: Report, ranking: Ranking) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a ranking, as they are printed and written."""
    plan = report.plan
    headings = ["policy", "setting", plan.unit, "over prompts", "over seeds", "to the best"]
    if plan.limits is not None:
        headings += ["tokens/s", "attained"]
    headings += ["TPOT p99 (ms)", "nodes", "modelled", "clamped"]
    return headings, [_row(plan, ranking, place) for place in ranking.places]


def _row(plan: Plan, ranking: Ranking, place: Place) -> list[str]:
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
