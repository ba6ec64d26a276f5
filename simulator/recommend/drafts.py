"""What to say of policies that verify nothing of what they draft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.load_policy import make_policy
from simulator.recommend.choose import Place, Ranking

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
