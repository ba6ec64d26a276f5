"""Requests that are not settled yet: a table that grows at one end and is thinned out."""

from __future__ import annotations

import numpy as np

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
