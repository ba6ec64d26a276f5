"""Policies tuned for a load and ranked there, the load to run at, and what that rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.engine.run import Job, load
from simulator.policies.loading import make_policy
from simulator.results.summary import what_if_reason
from simulator.studies.contest.command_line import command_of
from simulator.studies.contest.entrants import DEPTHS, Entrant
from simulator.studies.contest.plan import MIXTURE, ContestPlan
from simulator.studies.contest.scores import Contest, Ratio, Score, against
from simulator.studies.report import MUCH
from traces.common.errors import InputError


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
    job = load(config)
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
