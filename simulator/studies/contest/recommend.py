"""`task=recommend`: tune every policy for the load, play, rank, and say what to run.

`recommend.json` holds everything, `recommend.md` and the terminal the same to be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simulator.results.summary import plain
from simulator.studies.contest.plan import read_recommend_plan
from simulator.studies.contest.ranking import (
    Place,
    Ranking,
    Recommendation,
    rankings,
    recommended,
)
from simulator.studies.contest.scores import Contest, InDomain
from simulator.studies.report import (
    digits,
    ends,
    finite,
    job_facts,
    json_text,
    number,
    policy_settings,
    span,
    with_ends,
    write_texts,
)
from simulator.studies.store import Store
from traces.common.table import BLANK, Notes, Part, Table, emit, render

JSON, MARKDOWN = "recommend.json", "recommend.md"
FORMAT, VERSION = "specdec-recommendation", 1
SHARES = ("modelled", "clamped")

load = read_recommend_plan


def run(cfg: Mapping[str, Any], folder: Path) -> None:
    """Recommend, print, and write `recommend.json` and `recommend.md` into `folder`.

    Every finished run is in `recommend.jsonl` there at once; what it holds is not run again.

    Raises:
        InputError: see `read_recommend_plan`; no policy that plays.
    """
    plan = read_recommend_plan(cfg)
    with Store(folder, "recommend") as store:
        contest = Contest(plan, store)
        ranked = rankings(contest)
    found = recommended(contest, ranked)
    tables = list(_tables(found))
    markdown = [
        f"# Recommendation\n\n{_sentence(found)}\n\n```bash\n{found.command}\n```\n\n",
        *(f"- {note}\n" for note in found.notes),
        "\n" if found.notes else "",
        render(tables, "markdown"),
    ]
    write_texts(folder, {MARKDOWN: "".join(markdown), JSON: json_text(_as_json(found))})
    emit(tables, "table")
    for note in found.notes:
        print(f"note: {note}")
    print(_sentence(found))
    print(found.command)
    store.say_done(contest.played, "runs", folder / JSON)


def _as_json(found: Recommendation) -> dict[str, Any]:
    """All numbers; those of a ranking are of the report split."""
    plan, settings = found.plan, found.plan.settings
    best = _place(found, found.chosen.best)
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
        "recommended": {
            "max_concurrency": found.chosen.concurrency,
            **best,
            "per_gpu": best["value"] / plan.num_gpus,
            "indistinguishable": [one.policy for one in found.chosen.same],
            "command": found.command,
        },
        "loads": [
            {
                "max_concurrency": ranking.concurrency,
                "best": ranking.best.policy,
                "indistinguishable": [one.policy for one in ranking.same],
                "policies": [_place(found, place) for place in ranking.places],
            }
            for ranking in found.rankings
        ],
        "notes": list(found.notes),
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
        **{f"share_{kind}": score.share(kind) for kind in SHARES},
        "by_domain": [
            {
                "domain": one.domain,
                "prompts": one.prompts,
                **with_ends("tokens_per_s_of_a_request", one.speed),
                "attained": finite(one.attained),  # of none that was judged there is none
            }
            for one in _domains(found, place)
        ],
    }


def _domains(found: Recommendation, place: Place) -> list[InDomain]:
    recording = found.job.recording
    return place.score.in_domains(recording["domain"][place.score.sequences], recording.domains)


def _tables(found: Recommendation) -> Iterator[Part]:
    """A ranking for each load, then the best of all loads and of all domains."""
    plan = found.plan
    goodput = [] if plan.limits is None else ["tokens/s", "attained"]
    heads = ["policy", "setting", plan.unit, "over prompts", "over seeds", "to the best", *goodput]
    heads += ["TPOT p99 (ms)", "nodes", *SHARES]
    align = "ll" + "r" * (len(heads) - 2)
    for ranking in found.rankings:
        rows = [_row(found, ranking, place) for place in ranking.places]
        yield Table(heads, rows, caption=_title(found, ranking), align=align)
    yield Notes([("signs", _legend(found))])
    if len(found.rankings) > 1:
        yield _by_load(found)
    if len(_domains(found, found.chosen.best)) > 1:
        yield _by_domain(found)


def _row(found: Recommendation, ranking: Ranking, place: Place) -> list[str]:
    score, ratio = place.score, place.ratio.over_prompts.value
    to_best = (BLANK if ratio != ratio else f"{ratio:.3f}") + (
        " =" if place in ranking.same else ""
    )
    row = [
        place.policy,
        score.entrant.setting,
        number(score.value),
        span(score.over_prompts, number),
        span(score.over_seeds, number),
        "best" if place is ranking.best else to_best,
    ]
    if found.plan.limits is not None:
        row += [number(score.tokens_s), f"{score.attained:.4f}{'' if place.meets else ' !'}"]
    row += [digits(score.level_ms("tpot"), 2), digits(score.mean("nodes"), 1)]
    return [*row, *(f"{score.share(kind):.0%}" for kind in SHARES)]


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


def _title(found: Recommendation, ranking: Ranking) -> str:
    """The load of a table."""
    plan, settings = found.plan, found.plan.settings
    load = f"{ranking.concurrency} clients"
    if not settings.closed_loop:
        from_file = settings.workload.arrivals == "file"
        load = "the file's arrivals" if from_file else f"{settings.request_rate:g} requests/s"
        if ranking.concurrency is not None:
            load += f", {ranking.concurrency} at once at most"
    within = " ".join(f"{name}:{limit:g}" for name, limit in (plan.limits or {}).items())
    recording, profile = found.job.config["trace"]["recording"], found.job.cost.profile.name
    seeds = ", ".join(map(str, plan.seeds))
    text = f"{recording} on {profile}, {load}, {plan.asked.split_report} split, seeds {seeds}"
    return text + (f", within {within} ms" if within else "")


def _legend(found: Recommendation) -> str:
    """What the tables' signs mean."""
    plan = found.plan
    text = (
        "setting default: as in the policy's own file; intervals: 95 %; "
        "= cannot be told from the best, over prompts or over seeds; "
        "modelled, clamped: shares of step time"
    )
    if plan.limits is not None:
        text += f"; ! below {plan.asked.attained:g} attained"
        if not plan.settings.closed_loop:
            text += "; good requests/s: the rate at which requests come times the share attained"
    return text


def _sentence(found: Recommendation) -> str:
    """The recommendation, before its command line."""
    plan, chosen, score = found.plan, found.chosen, found.chosen.best.score
    text = f"recommended: {score.entrant.policy} ({score.entrant.setting})"
    if len(plan.concurrency) > 1:
        text += f" at max_concurrency {chosen.concurrency}"
    text += f", {number(score.value)} {plan.unit} expected"
    text += f" ({span(score.over_prompts, number)} over prompts"
    text += f", {span(score.over_seeds, number)} over seeds)"
    if chosen.same:
        text += "; not told from it: " + ", ".join(one.policy for one in chosen.same)
    return text + "; to run it:"
