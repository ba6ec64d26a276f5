"""`recommend.json`, everything, and `recommend.md` and the terminal, the same to be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simulator.results.summary import plain
from simulator.studies.contest.ranking import Place, Ranking, Recommendation
from simulator.studies.contest.scores import InDomain
from simulator.studies.report import (
    digits,
    ends,
    finite,
    job_facts,
    json_text,
    number,
    policy_settings,
    span,
    write_texts,
)
from traces.common.table import BLANK, Notes, Part, Table, emit, render

JSON, MARKDOWN = "recommend.json", "recommend.md"
FORMAT, VERSION = "specdec-recommendation", 1


def write(folder: Path, found: Recommendation) -> None:
    """Both files, or neither."""
    markdown = "".join(
        [
            f"# Recommendation\n\n{sentence(found)}\n\n```bash\n{found.command}\n```\n\n",
            *(f"- {note}\n" for note in found.notes),
            "\n" if found.notes else "",
            render(list(_tables(found)), "markdown"),
        ]
    )
    write_texts(folder, {MARKDOWN: markdown, JSON: json_text(as_json(found))})


def print_report(found: Recommendation) -> None:
    """The tables of all loads, notes, and the recommendation."""
    emit(_tables(found), "table")
    for note in found.notes:
        print(f"note: {note}")
    print(sentence(found))
    print(found.command)


def as_json(found: Recommendation) -> dict[str, Any]:
    """All numbers; those of a ranking are of the report split."""
    plan, settings = found.plan, found.plan.settings
    return {
        "format": FORMAT,
        "version": VERSION,
        **job_facts(found.job),
        "request_rate": "inf" if settings.closed_loop else plain(settings.request_rate),
        "burstiness": settings.burstiness,
        "objectives_ms": None if plan.limits is None else dict(plan.limits),
        "attained_from": plan.asked.attained,
        "ranked_by": plan.measure,
        "split_tune": plan.asked.split_tune,
        "split_report": plan.asked.split_report,
        "tuning_seeds": list(plan.tuning_seeds),
        "seeds": list(plan.seeds),
        "resamples": plan.asked.resamples,
        "num_gpus": plan.num_gpus,
        "recommended": _recommended(found),
        "loads": [_load(found, ranking) for ranking in found.rankings],
        "notes": list(found.notes),
    }


def _recommended(found: Recommendation) -> dict[str, Any]:
    place = _place(found, found.chosen.best)
    return {
        "max_concurrency": found.chosen.concurrency,
        **place,
        "per_gpu": place["value"] / found.plan.num_gpus,
        "indistinguishable": [one.policy for one in found.chosen.same],
        "command": found.command,
    }


def _load(found: Recommendation, ranking: Ranking) -> dict[str, Any]:
    return {
        "max_concurrency": ranking.concurrency,
        "best": ranking.best.policy,
        "indistinguishable": [one.policy for one in ranking.same],
        "policies": [_place(found, place) for place in ranking.places],
    }


def _place(found: Recommendation, place: Place) -> dict[str, Any]:
    score, ratio = place.score, place.ratio
    return {
        "policy": place.policy,
        "setting": score.entrant.setting,
        "policy_config": policy_settings(score.entrant.node),
        "value": score.value,
        **ends("prompts", score.over_prompts),
        **ends("seeds", score.over_seeds),
        "by_seed": score.values,
        "output_throughput": score.tokens_s,
        "attained": score.attained if found.plan.limits else None,
        "meets": place.meets,
        "ratio_to_best": finite(ratio.over_prompts.value),
        **ends("ratio_prompts", ratio.over_prompts),
        **ends("ratio_seeds", ratio.over_seeds),
        **{f"p99_{name}_ms": score.level_ms(name) for name in ("ttft", "tpot", "e2el")},
        "draft_nodes_per_request": score.mean("nodes"),
        "share_modelled": score.share("modelled"),
        "share_clamped": score.share("clamped"),
        "by_domain": [_domain(one) for one in _domains(found, place)],
    }


def _domains(found: Recommendation, place: Place) -> list[InDomain]:
    recording = found.job.recording
    return place.score.in_domains(recording["domain"][place.score.sequences], recording.domains)


def _domain(one: InDomain) -> dict[str, Any]:
    return {
        "domain": one.domain,
        "prompts": one.prompts,
        "tokens_per_s_of_a_request": one.speed.value,
        **ends("tokens_per_s_of_a_request", one.speed),
        "attained": finite(one.attained),  # of none that was judged there is none
    }


def _tables(found: Recommendation) -> Iterator[Part]:
    yield from (_ranked(found, ranking) for ranking in found.rankings)
    yield Notes([("signs", legend(found))])
    if len(found.rankings) > 1:
        yield _by_load(found)
    if len(_domains(found, found.chosen.best)) > 1:
        yield _by_domain(found)


def _ranked(found: Recommendation, ranking: Ranking) -> Table:
    plan = found.plan
    goodput = [] if plan.limits is None else ["tokens/s", "attained"]
    heads = ["policy", "setting", plan.unit, "over prompts", "over seeds", "to the best", *goodput]
    heads += ["TPOT p99 (ms)", "nodes", "modelled", "clamped"]
    rows = [_row(found, ranking, place) for place in ranking.places]
    return Table(heads, rows, caption=title(found, ranking), align="ll" + "r" * (len(heads) - 2))


def _row(found: Recommendation, ranking: Ranking, place: Place) -> list[str]:
    score = place.score
    row = [
        place.policy,
        score.entrant.setting,
        number(score.value),
        span(score.over_prompts, number),
        span(score.over_seeds, number),
        _to_best(ranking, place),
    ]
    if found.plan.limits is not None:
        row += [number(score.tokens_s), f"{score.attained:.4f}{'' if place.meets else ' !'}"]
    row += [digits(score.level_ms("tpot"), 2), digits(score.mean("nodes"), 1)]
    return [*row, *(f"{score.share(kind):.0%}" for kind in ("modelled", "clamped"))]


def _to_best(ranking: Ranking, place: Place) -> str:
    if place is ranking.best:
        return "best"
    value = place.ratio.over_prompts.value
    return (BLANK if value != value else f"{value:.3f}") + (" =" if place in ranking.same else "")


def _by_load(found: Recommendation) -> Table:
    """The best policy of every load."""
    unit = found.plan.unit
    rows = [
        [
            str(one.concurrency),
            one.best.policy,
            one.best.score.entrant.setting,
            number(one.best.score.value),
            number(one.best.score.value / found.plan.num_gpus),
            "yes" if one.best.meets else "no",
        ]
        for one in found.rankings
    ]
    heads = ["max_concurrency", "policy", "setting", unit, f"{unit} per GPU", "met"]
    return Table(heads, rows, caption="By load", align="rllrrr")


def _by_domain(found: Recommendation) -> Table:
    """The recommended policy and the best of each domain."""
    everyone = {place.policy: _domains(found, place) for place in found.chosen.places}
    best_policy, goodput = found.chosen.best.policy, found.plan.limits is not None
    own, rows = everyone[best_policy], []
    for index, one in enumerate(own):
        there = {name: parts[index] for name, parts in everyone.items() if len(parts) == len(own)}
        best = max(there, key=lambda name: there[name].speed.value)
        row = [one.domain, str(one.prompts), number(one.speed.value), span(one.speed, number)]
        row += [f"{one.attained:.4f}"] if goodput else []
        rows.append([*row, best, number(there[best].speed.value)])
    heads = ["domain", "prompts", "tokens/s of a request", "over prompts"]
    heads += ["attained"] if goodput else []
    heads += ["fastest there", "tokens/s of a request"]
    return Table(heads, rows, caption=f"{best_policy} by domain")


def title(found: Recommendation, ranking: Ranking) -> str:
    """The load of a table."""
    plan, settings = found.plan, found.plan.settings
    if settings.closed_loop:
        load = f"{ranking.concurrency} clients"
    else:
        load = f"{settings.request_rate:g} requests/s"
        if settings.workload.arrivals == "file":
            load = "the file's arrivals"
        if ranking.concurrency is not None:
            load += f", {ranking.concurrency} at once at most"
    within = " ".join(f"{name}:{limit:g}" for name, limit in (plan.limits or {}).items())
    recording, profile = found.job.config["trace"]["recording"], found.job.cost.profile.name
    seeds = ", ".join(map(str, plan.seeds))
    text = f"{recording} on {profile}, {load}, {plan.asked.split_report} split, seeds {seeds}"
    return text + (f", within {within} ms" if within else "")


def legend(found: Recommendation) -> str:
    """What the tables' signs mean."""
    plan = found.plan
    text = (
        "setting default: as in the policy's own file; intervals: 95 %; "
        "= cannot be told from the best, over prompts or over seeds; "
        "modelled, clamped: shares of step time"
    )
    if plan.limits is None:
        return text
    text += f"; ! below {plan.asked.attained:g} attained"
    if not plan.settings.closed_loop:
        text += "; good requests/s: the rate at which requests come times the share attained"
    return text


def sentence(found: Recommendation) -> str:
    """The recommendation, before its command line."""
    plan, chosen = found.plan, found.chosen
    score, entrant = chosen.best.score, chosen.best.score.entrant
    text = f"recommended: {entrant.policy} ({entrant.setting})"
    if len(plan.concurrency) > 1:
        text += f" at max_concurrency {chosen.concurrency}"
    text += f", {number(score.value)} {plan.unit} expected"
    text += f" ({span(score.over_prompts, number)} over prompts"
    text += f", {span(score.over_seeds, number)} over seeds)"
    if chosen.same:
        text += "; not told from it: " + ", ".join(one.policy for one in chosen.same)
    return text + "; to run it:"
