"""`task=recommend`: tune every policy for the load, play, rank, and say what to run.

`recommend.json` holds everything, `recommend.md` and the terminal the same to be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.engine import run as engine
from simulator.engine.run import Job
from simulator.policies.loading import make_policy
from simulator.results.summary import plain, what_if_reason
from simulator.studies.contest.command_line import command_of
from simulator.studies.contest.entrants import DEPTHS, Entrant
from simulator.studies.contest.plan import MIXTURE, ContestPlan, read_recommend_plan
from simulator.studies.contest.scores import Contest, InDomain, Ratio, Score, against
from simulator.studies.report import (
    MUCH,
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
from traces.common.errors import InputError
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


# ---------------- Ranking: policies tuned for a load, and the load to run at.


@dataclass(frozen=True, slots=True)
class Place:
    """A policy in the ranking of a load, with its best setting."""

    score: Score
    meets: bool  # whether enough requests are within every limit; without limits always
    ratio: Ratio  # to the first

    @property
    def policy(self) -> str:
        return self.score.entrant.policy

    @property
    def drafts(self) -> bool:
        """Whether the policy ever drafts."""
        return make_policy(self.score.entrant.node).drafts


@dataclass(frozen=True, slots=True)
class Ranking:
    """All policies at one load, the best first."""

    concurrency: int | None
    places: tuple[Place, ...]

    @property
    def best(self) -> Place:
        return self.places[0]

    @property
    def same(self) -> list[Place]:
        """Others that cannot be told from the best, and meet what it meets."""
        return [one for one in self.places[1:] if one.ratio.same and one.meets == self.best.meets]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What was found, and what to say about it."""

    plan: ContestPlan
    job: Job  # any of the runs, for what all of them share
    rankings: tuple[Ranking, ...]
    chosen: Ranking
    notes: tuple[str, ...]
    command: str  # that runs the recommended policy at that load, once for each seed


def recommended(contest: Contest, found: list[Ranking]) -> Recommendation:
    """What to run, of all loads' rankings.

    Raises:
        InputError: no policy that plays.
    """
    plan = contest.plan
    if not found:
        name, reason = next(iter(contest.refused.items()))
        raise InputError(
            f"recommend.policies: none of them plays here; accepted: at least one that does "
            f"({name}: {reason})"
        )
    # All loads run on the same GPUs, so most per second is most per GPU.
    chosen = max(found, key=lambda one: (one.best.meets, one.best.score.value))
    cell = plan.report_cell(plan.deployments[0], chosen.concurrency, MIXTURE)
    config = plan.run(cell, chosen.best.score.entrant, plan.seeds[0]).config
    job = engine.load(config)
    lines = [*_warnings(plan, job, found, chosen), *without_drafts(found)]
    lines += [f"{name}: {reason}, left out" for name, reason in contest.refused.items()]
    said = tuple(dict.fromkeys(lines))
    return Recommendation(plan, job, tuple(found), chosen, said, command_of(config, plan.seeds))


def rankings(contest: Contest) -> list[Ranking]:
    """By load; policies that refuse it in all settings are left out of it.

    Raises:
        InputError: see `simulator.studies.runs.play`.
    """
    plan, (deployment,) = contest.plan, contest.plan.deployments
    tuning = {load: plan.tuning_cell(deployment, load) for load in plan.concurrency}
    report = {load: plan.report_cell(deployment, load, MIXTURE) for load in plan.concurrency}
    everyone = [one for rival in plan.rivals for one in plan.entrants(rival, deployment)]
    contest.play((cell, one) for cell in tuning.values() for one in everyone)
    tuned = {load: list(_tuned(contest, cell)) for load, cell in tuning.items()}
    contest.play((report[load], one) for load, entrants in tuned.items() for one in entrants)
    found = []
    for concurrency, cell in report.items():
        playing = _playing(contest, cell, tuned[concurrency])
        if playing:
            found.append(ranking(plan, concurrency, playing))
    return found


def _tuned(contest: Contest, cell) -> Iterator[Entrant]:
    """The best setting of every policy on the tuning split; equal ones: the first of the grid."""
    for rival in contest.plan.rivals:
        playing = _playing(contest, cell, contest.plan.entrants(rival, cell.deployment))
        if playing:
            yield max(playing, key=lambda one: (one.value, one.tokens_s)).entrant


def _playing(contest: Contest, cell, entrants: Sequence[Entrant]) -> list[Score]:
    scores = [contest.score(cell, one) for one in entrants]
    return [one for one in scores if not isinstance(one, str)]


def ranking(plan: ContestPlan, concurrency: int | None, scores: Sequence[Score]) -> Ranking:
    """Those that meet the objectives first, then by mean over seeds."""

    def meets(score: Score) -> bool:
        return plan.limits is None or score.attained >= plan.asked.attained

    ranked = sorted(scores, key=lambda one: (not meets(one), -one.value, -one.tokens_s))
    places = [Place(one, meets(one), against(one, ranked[0])) for one in ranked]
    return Ranking(concurrency, tuple(places))


# ---------------- What a recommendation rests on, in a line each.


def _warnings(
    plan: ContestPlan, job: Job, found: Sequence[Ranking], chosen: Ranking
) -> Iterator[str]:
    best, score = chosen.best, chosen.best.score
    reason = what_if_reason(job)
    if reason is not None:
        yield f"what-if: {reason}"
    for kind in ("modelled", "clamped"):
        share = score.share(kind)
        if share > MUCH:
            yield f"{share:.0%} of the step time of {best.policy} is {kind}"
    if plan.limits is None:
        if not plan.settings.closed_loop:
            yield (
                "an open loop without objectives: every policy that keeps up serves the same "
                "tokens; goodput tells them apart"
            )
        if len(plan.concurrency) > 1:
            yield "without objectives (goodput) throughput alone chooses max_concurrency"
    elif not any(place.meets for one in found for place in one.places):
        yield (
            f"no policy has {plan.asked.attained:.4g} of its requests within every limit; the best "
            f"has {score.attained:.4f}"
        )
    if any(run.growing for run in score.runs):
        yield "its queue grows: latencies and goodput depend on how long a run is (num_prompts)"
    if "ttft" in (plan.limits or ()) and job.cost.prefill == "none":
        yield "prefill is free with this profile: TTFT is the queue's alone"
    yield from _edges(plan, best.policy, score.entrant.node)


def _edges(plan: ContestPlan, policy: str, node: Mapping[str, Any]) -> Iterator[str]:
    """Settings at an end of what was tried, beyond which a better one may lie."""
    rival = next(one for one in plan.rivals if one.policy == policy)
    for key, values in rival.grid.items():
        if values == DEPTHS:  # nothing lies beyond
            continue
        numbers = {number_of(one) for one in (*values, rival.node.get(key))}  # its YAML's own too
        tried, value = sorted(numbers - {None}), number_of(node.get(key))
        if value is not None and len(tried) > 1 and value in (tried[0], tried[-1]):
            yield (
                f"policy.{key} of {policy} is at the edge of its grid "
                f"({tried[0]:g} to {tried[-1]:g}): a wider one may have a better"
            )


def number_of(value: Any) -> float | None:
    """The number of a setting: its own, or the theta of a ladder of one rung."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        value = value[0].get("theta")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number else None


NONE = 0.05  # draft nodes per request that are shown as 0.0
SHOWN = 0.005  # share of steps, or of throughput, that is shown as 1 %


def without_drafts(found: Sequence[Ranking]) -> Iterator[str]:
    """A line for every policy that could draft, with the loads at which it verifies nothing.

    It says what the policy pays for drafts all the same, against plain decoding where that plays.
    """
    idle: dict[str, list[tuple[Ranking, Place]]] = {}
    for ranked in found:
        for place in ranked.places:
            nodes = place.score.mean("nodes")
            if nodes is not None and nodes < NONE and place.drafts:
                idle.setdefault(place.policy, []).append((ranked, place))
    for policy, places in idle.items():
        loads = [str(one.concurrency) for one, _ in places if one.concurrency is not None]
        where = f" at max_concurrency {', '.join(loads)}" if loads else ""
        text = f"{policy} verifies no draft token{where}: its own rule finds none worth the time"
        most = max(place.score.mean("drafting") for _, place in places)
        if most < SHOWN:
            yield f"{text}, and it decodes plainly"
            continue
        text += f", but it drafts in {most:.0%} of its steps and pays for it"
        below = max(_below(ranked, place) for ranked, place in places)
        fewer = f"; up to {below:.0%} fewer tokens/s than plain decoding"
        yield text + (fewer if below >= SHOWN else "")


def _below(ranked: Ranking, place: Place) -> float:
    """Share of plain decoding's tokens per second that it lacks; 0 without such a policy."""
    plain = max((one.score.tokens_s for one in ranked.places if not one.drafts), default=0.0)
    return 1 - place.score.tokens_s / plain if plain > 0 else 0.0


# ---------------- Report.


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
