"""Rounds folded into the open requests they belong to, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from simulator.results.facts import Columns
from simulator.results.open_requests import OpenRequests


class Steps(NamedTuple):
    """(S,) columns of steps."""

    time_s: np.ndarray
    step_s: np.ndarray
    batch: np.ndarray
    drafted: np.ndarray
    inside: np.ndarray  # whether the step lies in the window


class Rounds(NamedTuple):
    """(R,) columns of their rounds."""

    place: np.ndarray  # row of the request among the open ones
    width: np.ndarray
    accepted: np.ndarray
    committed: np.ndarray


class Requests(NamedTuple):
    """Columns of the open requests that rounds read, and those that they change."""

    warmup: np.ndarray
    first_token_s: np.ndarray
    last_s: np.ndarray  # end of the last chunk, NaN before the first
    rounds: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    draft_nodes: np.ndarray
    committed: np.ndarray
    in_rounds: np.ndarray
    in_drafts: np.ndarray
    in_accepted: np.ndarray
    in_tokens: np.ndarray


class Folded(NamedTuple):
    """What a block of rounds adds to the sums of the run."""

    gaps_ms: np.ndarray  # between chunks, of the window's rounds and without warm-up requests
    accepting: np.ndarray  # (deepest + 1,) the window's rounds that paid a draft, by accepted
    waited_s: float  # from chunks to the requests' next steps, see `metrics.waits`
    least_s: float  # of these waits


def fold(
    open_: OpenRequests, steps: Columns, rounds: Columns, inside: np.ndarray, place: np.ndarray
) -> Folded:
    """Add a block's (R,) rounds to their requests.

    Args:
        inside: (S,) whether a step lies in the window. place: (R,) rows of `open_`.
    """
    steps = steps | {"inside": inside}
    rounds = rounds | {"place": place}
    return _fold(
        Steps(*(steps[name] for name in Steps._fields)),
        Rounds(*(rounds[name] for name in Rounds._fields)),
        Requests(*(open_[name] for name in Requests._fields)),
        np.empty(len(place)),
        np.zeros(int(rounds["accepted"].max(initial=0)) + 1, np.int64),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _fold(steps, rounds, requests, gaps_ms, accepting):
    number = gaps = 0
    waited_s, least_s = 0.0, 0.0
    for step in range(len(steps.batch)):
        begin_s, step_s = steps.time_s[step], steps.step_s[step]
        drafted, inside = steps.drafted[step], steps.inside[step]
        for at in range(number, number + steps.batch[step]):
            place, accepted, committed = rounds.place[at], rounds.accepted[at], rounds.committed[at]
            before_s = requests.last_s[place]
            if np.isnan(before_s):
                before_s = requests.first_token_s[place]
            wait_s = begin_s - before_s
            waited_s += wait_s
            least_s = min(least_s, wait_s)
            requests.last_s[place] = begin_s + step_s
            requests.rounds[place] += 1
            requests.drafted[place] += drafted
            requests.accepted[place] += accepted
            requests.draft_nodes[place] += rounds.width[at]
            requests.committed[place] += committed
            if not inside:
                continue
            requests.in_rounds[place] += 1
            requests.in_tokens[place] += committed
            if drafted:
                requests.in_drafts[place] += 1
                requests.in_accepted[place] += accepted
                accepting[accepted] += 1
            if not requests.warmup[place]:
                gaps_ms[gaps] = (step_s + wait_s) * 1e3
                gaps += 1
        number += steps.batch[step]
    return Folded(gaps_ms[:gaps], accepting, waited_s, least_s)
