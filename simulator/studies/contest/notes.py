"""What a recommendation rests on, in a line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulator.engine.run import Job
from simulator.policies.loading import make_policy
from simulator.results.summary import what_if_reason
from simulator.studies.capacity.answer import MUCH
from simulator.studies.contest.entrants import DEPTHS, Rival
from simulator.studies.contest.plan import RecommendPlan
from simulator.studies.contest.tuning import Contest, Place, Ranking

# ---------------- What to say of policies that verify nothing of what they draft.


NONE = 0.05  # draft nodes per request that are shown as 0.0
SHOWN = 0.005  # share of steps, or of throughput, that is shown as 1 %
WHY = "its own rule finds none worth the time"


def without_drafts(found: Sequence[Ranking]) -> Iterator[str]:
    """A line for every policy that could draft, with the loads at which it verifies nothing."""
    idle: dict[str, list[tuple[Ranking, Place]]] = {}
    for ranking in found:
        for place in ranking.places:
            nodes = place.score.mean("nodes")
            if nodes is not None and nodes < NONE and _drafts(place):
                idle.setdefault(place.policy, []).append((ranking, place))
    for policy, places in idle.items():
        yield f"{policy} verifies no draft token{_loads(places)}: {WHY}{_lost(places)}"


def _drafts(place: Place) -> bool:
    return make_policy(place.score.entrant.node).drafts


def _loads(places: Sequence[tuple[Ranking, Place]]) -> str:
    loads = [str(ranking.concurrency) for ranking, _ in places if ranking.concurrency is not None]
    return f" at max_concurrency {', '.join(loads)}" if loads else ""


def _lost(places: Sequence[tuple[Ranking, Place]]) -> str:
    """What it pays for drafts all the same, against plain decoding where that plays too."""
    shares = [place.score.mean("drafting") for _, place in places]
    if None in shares:
        return ""
    if max(shares) < SHOWN:
        return ", and it decodes plainly"
    below = max(_below(ranking, place) for ranking, place in places)
    text = f", but it drafts in {max(shares):.0%} of its steps and pays for it"
    most = f"; up to {below:.0%} fewer tokens/s than plain decoding"
    return text + (most if below >= SHOWN else "")


def _below(ranking: Ranking, place: Place) -> float:
    """Share of plain decoding's tokens per second that it lacks; 0 without such a policy."""
    plain = [one.score.tokens_s for one in ranking.places if not _drafts(one)]
    return 1 - place.score.tokens_s / max(plain) if plain and max(plain) > 0 else 0.0


def notes(contest: Contest, job: Job, found: Sequence[Ranking], chosen: Ranking) -> list[str]:
    """Warnings first; `job` is any of the runs."""
    lines = [*_warnings(contest.plan, job, found, chosen), *without_drafts(found)]
    lines += [f"{name}: {reason}, left out" for name, reason in contest.refused.items()]
    return list(dict.fromkeys(lines))


def _warnings(
    plan: RecommendPlan, job: Job, found: Sequence[Ranking], chosen: Ranking
) -> Iterator[str]:
    best, score = chosen.best, chosen.best.score
    reason = what_if_reason(job)
    if reason is not None:
        yield f"what-if: {reason}"
    for kind in ("modelled", "clamped"):
        share = score.mean(kind)
        if share > MUCH:
            yield f"{share:.0%} of the step time of {best.policy} is {kind}"
    if plan.limits is not None and not any(place.meets for one in found for place in one.places):
        yield (
            f"no policy has {plan.attained:.4g} of its requests within every limit; the best has "
            f"{score.attained:.4f}"
        )
    if plan.limits is None and not plan.settings.closed_loop:
        yield (
            "an open loop without objectives: every policy that keeps up serves the same tokens; "
            "goodput tells them apart"
        )
    if plan.limits is None and len(plan.concurrency) > 1:
        yield "without objectives (goodput) throughput alone chooses max_concurrency"
    if any(run.growing for run in score.runs):
        yield "its queue grows: latencies and goodput depend on how long a run is (num_prompts)"
    if plan.limits is not None and "ttft" in plan.limits and job.cost.prefill == "none":
        yield "prefill is free with this profile: TTFT is the queue's alone"
    yield from _edges(plan, best.policy, score.entrant.node)


def _edges(plan: RecommendPlan, policy: str, node: Mapping[str, Any]) -> Iterator[str]:
    """Settings at an end of what was tried, beyond which a better one may lie."""
    rival = next(one for one in plan.rivals if one.policy == policy)
    for key in rival.grid:
        if rival.grid[key] == DEPTHS:  # nothing lies beyond
            continue
        tried = _tried(rival, key)
        value = number_of(node.get(key))
        if value is not None and len(tried) > 1 and value in (tried[0], tried[-1]):
            yield (
                f"policy.{key} of {policy} is at the edge of its grid "
                f"({tried[0]:g} to {tried[-1]:g}): a wider one may have a better"
            )


def _tried(rival: Rival, key: str) -> list[float]:
    """The numbers of a grid, and the YAML's own, ascending; none where they are no numbers."""
    values = [number_of(value) for value in (*rival.grid[key], rival.node.get(key))]
    return sorted({value for value in values if value is not None})


def number_of(value: Any) -> float | None:
    """The number of a setting: its own, or the theta of a ladder of one rung."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        value = value[0].get("theta")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number else None
