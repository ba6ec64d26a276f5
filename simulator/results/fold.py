"""Rounds added to their requests, and what they say of the run as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from simulator.results.facts import COUNTS, Columns, Facts
from simulator.results.window import Window

# Of each request: sums over its rounds, over those of the window's steps (`in_accepted`: of rounds
# that paid a draft; tokens and `committed` are the same), and the end of the last one, NaN before.
SUMMED = (*COUNTS, "committed", "in_rounds", "in_drafts", "in_accepted", "in_tokens")
ADDED = (*SUMMED, "last_s")


@dataclass(frozen=True, slots=True)
class Folded:
    """What a block of rounds adds to the sums of the run."""

    gaps_s: np.ndarray  # between chunks: of the window's rounds, in order, no warm-up requests
    accepting: np.ndarray  # (deepest + 1,) the window's rounds that paid a draft, by accepted
    waited_s: float  # from chunks to the requests' next steps
    least_s: float  # of these waits


def fold(
    requests: Columns, place: np.ndarray, steps: Columns, rounds: Columns, inside: np.ndarray
) -> Folded:
    """Add a block's (R,) rounds to the columns `ADDED` of their requests.

    A gap is the step and what kept it waiting: prefill of other requests (nothing where that is
    free, as every running request is in every step), or steps that the request was not in because
    it had been pushed out. The first one begins with the request's first token.

    Args:
        place: (R,) rows of `requests`.
        rounds: `step` counts from the block's first. inside: (S,) whether a step is in the window.
    """
    if not len(place):
        return Folded(np.zeros(0), np.zeros(1, np.int64), 0.0, 0.0)
    step, begin_s = rounds["step"], steps["time_s"]
    kept, drafted = inside[step], steps["drafted"][step]
    paid = kept & drafted
    one, accepted, committed = np.ones_like(step), rounds["accepted"], rounds["committed"]
    values = (one, drafted, accepted, rounds["width"], committed)
    values += (kept, paid, accepted * paid, committed * kept)
    order = np.argsort(place, kind="stable")  # by request, and in the order of time
    row = place[order]
    head = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
    who = row[head]
    for name, column in zip(SUMMED, values, strict=True):
        requests[name][who] += np.add.reduceat(column[order].astype(np.int64, copy=False), head)
    end_s = (begin_s + steps["step_s"])[step[order]]
    before_s, last_s = np.roll(end_s, 1), requests["last_s"][who]
    before_s[head] = np.where(np.isnan(last_s), requests["first_token_s"][who], last_s)
    requests["last_s"][who] = end_s[np.append(head[1:], len(row)) - 1]
    waited_s = np.empty(len(order))
    waited_s[order] = begin_s[step[order]] - before_s
    gaps_s = steps["step_s"][step] + waited_s
    return Folded(
        gaps_s=gaps_s[kept & ~requests["warmup"][place]],
        accepting=np.bincount(accepted[paid], minlength=1),
        waited_s=float(waited_s.sum()),
        least_s=float(waited_s.min(initial=0.0)),
    )


def fold_long(
    requests: Columns, place: np.ndarray, steps: Columns, rounds: Columns, inside: np.ndarray
) -> Folded:
    """As `fold`, to the last bit but for the order in which waits are summed.

    Compiled: a tenth of its time, behind a second of loading.
    """
    gaps_s = np.empty(len(place))
    accepting = np.zeros(int(rounds["accepted"].max(initial=0)) + 1, np.int64)
    gaps, waited_s, least_s = _compiled()(
        (*(steps[name] for name in ("time_s", "step_s", "batch", "drafted")), inside),
        (place, *(rounds[name] for name in ("width", "accepted", "committed"))),
        tuple(requests[name] for name in ("warmup", "first_token_s", "last_s")),
        tuple(requests[name] for name in SUMMED),
        gaps_s,
        accepting,
    )
    return Folded(gaps_s[:gaps], accepting, waited_s, least_s)


@cache
def _compiled() -> Callable:
    from simulator.compiling import njit

    return njit(_fold_each, nogil=True, error_model="numpy")


def _fold_each(steps, rounds, requests, summed, gaps_s, accepting):
    time_s, steps_s, batch, drafts, window = steps
    place, width, accepted, committed = rounds
    warmup, first_token_s, last_s = requests
    all_rounds, drafted, all_accepted, nodes, tokens = summed[:5]
    in_rounds, in_drafts, in_accepted, in_tokens = summed[5:]
    number = gaps = 0
    waited_s, least_s = 0.0, 0.0
    for step in range(len(batch)):
        begin_s, step_s, inside, paid = time_s[step], steps_s[step], window[step], drafts[step]
        for at in range(number, number + batch[step]):
            who = place[at]
            before_s = first_token_s[who] if np.isnan(last_s[who]) else last_s[who]
            wait_s = begin_s - before_s
            waited_s += wait_s
            least_s = min(least_s, wait_s)
            last_s[who] = begin_s + step_s
            all_rounds[who] += 1
            drafted[who] += paid
            all_accepted[who] += accepted[at]
            nodes[who] += width[at]
            tokens[who] += committed[at]
            if not inside:
                continue
            in_rounds[who] += 1
            in_tokens[who] += committed[at]
            if paid:
                in_drafts[who] += 1
                in_accepted[who] += accepted[at]
                accepting[accepted[at]] += 1
            if not warmup[who]:
                gaps_s[gaps] = step_s + wait_s
                gaps += 1
        number += batch[step]
    return gaps, waited_s, least_s


@lru_cache(maxsize=1)  # a study asks three times about each of its runs
def fold_facts(facts: Facts, window: Window) -> tuple[Columns, Folded]:
    """(N,) `ADDED` of every request of a run, and its rounds in one block; not to be written to."""
    count = len(facts.requests["finish_s"])
    requests = {name: np.zeros(count, np.int64) for name in SUMMED} | {
        "last_s": np.full(count, np.nan),
        "first_token_s": facts.requests["first_token_s"],
        "warmup": facts.requests["warmup"],
    }
    inside, rounds = window.steps(facts), facts.rounds
    return requests, fold(requests, rounds["request"], facts.steps, rounds, inside)
