"""Requests that are not settled yet: a table that grows at one end and is thinned out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from simulator.results.facts import Columns

WORK = ("sequence", "domain", "prompt_tokens", "output_tokens", "warmup")  # of a workload
COUNTS = ("rounds", "drafted", "accepted", "draft_nodes")
SERVED = ("replica", "preemptions", "hand_overs", "rejected")
TIMES = ("arrival_s", "admitted_s", "first_token_s", "finish_s")
# In the order of a run's table of requests.
NAMES = ("request", "sequence", "domain", *TIMES, "prompt_tokens", "output_tokens", *COUNTS)
NAMES = (*NAMES, "warmup", *SERVED)
INSIDE = ("rounds", "drafts", "accepted", "tokens")  # in the window, see `request_sums`
# Beside them: tokens committed by rounds, and the end of the last one (NaN before the first).
_ALL = (*NAMES, "committed", "last_s", *(f"in_{name}" for name in INSIDE))
_SPAN = 1 << 22  # request numbers that a direct lookup may span


def _blank(name: str):
    """What a column holds of a request that has just arrived."""
    if name.endswith("_s"):
        return np.nan
    return False if name in ("warmup", "rejected") else 0


class OpenRequests:
    """Columns by name, their rows by request number, rising."""

    def __init__(self) -> None:
        self._columns = {name: np.full(64, _blank(name)) for name in _ALL}
        self._count = 0
        self._known = 0  # rows whose `WORK` is known: the first ones

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, name: str) -> np.ndarray:
        """A column, to be read and written."""
        return self._columns[name][: self._count]

    def add(self, request: np.ndarray, arrival_s: np.ndarray) -> None:
        """(n,) requests that arrive, of larger numbers than those before, and rising.

        Raises:
            ValueError: numbers that do not rise.
        """
        numbers = np.concatenate([self["request"][-1:], request])
        if np.any(numbers[1:] <= numbers[:-1]):
            raise ValueError("requests arrive out of order; accepted: rising numbers")
        first, self._count = self._count, self._count + len(request)
        size = len(self._columns["request"])
        if self._count > size:
            self._grow(max(2 * size, self._count))
        for name, column in self._columns.items():
            column[first : self._count] = _blank(name)
        self["request"][first:], self["arrival_s"][first:] = request, arrival_s

    def _grow(self, size: int) -> None:
        for name, column in self._columns.items():
            self._columns[name] = np.empty(size, column.dtype)
            self._columns[name][: len(column)] = column

    @property
    def unknown(self) -> np.ndarray:
        """(n,) numbers of the requests whose `WORK` is not known, rising."""
        return self["request"][self._known :]

    def know(self, columns: Columns) -> None:
        """`WORK` of the first (n,) unknown requests."""
        last = self._known + len(columns.get("sequence", ()))
        for name, values in columns.items():
            self._columns[name][self._known : last] = values
        self._known = last

    def places(self, request: np.ndarray) -> np.ndarray:
        """Rows of (n,) requests.

        Raises:
            KeyError: one that has not arrived, or was settled.
        """
        if not len(request):
            return np.zeros(0, np.int64)
        numbers = self["request"]
        low, high = int(request.min()), int(request.max())
        if high - low < _SPAN:
            first, last = np.searchsorted(numbers, [low, high + 1])
            lookup = np.full(high - low + 1, -1)
            lookup[numbers[first:last] - low] = np.arange(first, last)
            place = lookup[request - low]
        else:
            place = np.minimum(np.searchsorted(numbers, request), len(numbers) - 1)
            place[numbers[place] != request] = -1
        if int(place.min()) < 0:
            raise KeyError(f"request {request[place < 0][0]} has not arrived, or is over")
        return place

    def known_places(self, request: np.ndarray) -> np.ndarray:
        """`places` of requests that are served.

        Raises:
            KeyError: one of which the workload was not read through the ledger.
        """
        place = self.places(request)
        if int(place.max(initial=-1)) >= self._known:
            unread = request[place >= self._known][0]
            raise KeyError(f"request {unread} was not read from the ledger's workload")
        return place

    def columns(self, place: np.ndarray) -> Columns:
        """All columns at (n,) rows; a rejected request emits nothing."""
        columns = {name: column[place] for name, column in self._columns.items()}
        columns["output_tokens"][columns["rejected"]] = 0
        return columns

    def drop(self, place: np.ndarray) -> None:
        """Forget rows."""
        keep = np.ones(self._count, bool)
        keep[place] = False
        self._known = int(np.count_nonzero(keep[: self._known]))
        kept = np.flatnonzero(keep)
        for column in self._columns.values():
            column[: len(kept)] = column[kept]
        self._count = len(kept)


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
