"""What a ledger holds of requests that are not settled yet: their rows, ends and workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.results.facts import REQUEST_COLUMNS, Columns, joined
from simulator.results.fold import ADDED

if TYPE_CHECKING:
    from simulator.engine.arrivals import LazyWorkload, Workload

WORK = ("sequence", "domain", "prompt_tokens", "output_tokens", "warmup")  # of a workload
_SPAN = 1 << 22  # request numbers that a direct lookup may span


def _blank(name: str, count: int) -> np.ndarray:
    """What a column holds of requests that have just arrived."""
    if name.endswith("_s"):
        return np.full(count, np.nan)
    return np.zeros(count, bool if name in ("warmup", "rejected") else np.int64)


class OpenRequests:
    """Columns by name, their rows by request number, rising."""

    def __init__(self) -> None:
        self._columns = {name: _blank(name, 0) for name in (*REQUEST_COLUMNS, *ADDED)}
        self._known = 0  # rows whose `WORK` is known: the first ones

    def __getitem__(self, name: str) -> np.ndarray:
        """A column, to be read and written."""
        return self._columns[name]

    def add(self, request: np.ndarray) -> None:
        """(n,) requests, of larger numbers than those before, and rising.

        Raises:
            ValueError: numbers that do not rise.
        """
        numbers = np.concatenate([self["request"][-1:], request])
        if np.any(numbers[1:] <= numbers[:-1]):
            raise ValueError("requests arrive out of order; accepted: rising numbers")
        more = {name: _blank(name, len(request)) for name in self._columns} | {"request": request}
        self._columns = joined([self._columns, more])

    @property
    def unknown(self) -> np.ndarray:
        """(n,) numbers of the requests whose `WORK` is not known, rising."""
        return self["request"][self._known :]

    def know(self, columns: Columns) -> None:
        """`WORK` of the first (n,) unknown requests."""
        last = self._known + len(columns.get("sequence", ()))
        for name in WORK if columns else ():
            self[name][self._known : last] = columns[name]
        self._known = last

    def places(self, request: np.ndarray, served: bool = False) -> np.ndarray:
        """Rows of (n,) requests; `served`: of which the workload must be known.

        Raises:
            KeyError: one that has not arrived, was settled, or was not read.
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
        if served and int(place.max()) >= self._known:
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
        keep = np.ones(len(self["request"]), bool)
        keep[place] = False
        self._known = int(np.count_nonzero(keep[: self._known]))
        self._columns = {name: column[keep] for name, column in self._columns.items()}


class Ended:
    """Requests that are over, in the order of time, of equals in that of being noted."""

    def __init__(self) -> None:
        self._request, self._time_s = np.zeros(0, np.int64), np.zeros(0)

    def __len__(self) -> int:
        return len(self._request)

    def add(self, request: np.ndarray, time_s: np.ndarray) -> None:
        """(n,) requests that ended, or were rejected, no earlier than any that `until` gave."""
        self._request = np.concatenate([self._request, request])
        self._time_s = np.concatenate([self._time_s, time_s])

    def until(self, time_s: float) -> np.ndarray:
        """(n,) requests that ended before `time_s`, which are forgotten here."""
        order = np.argsort(self._time_s, kind="stable")
        request, times_s = self._request[order], self._time_s[order]
        count = int(np.searchsorted(times_s, time_s))
        self._request, self._time_s = request[count:], times_s[count:]
        return request[:count]


class KeptWorkload:
    """A workload whose rows are kept, as they are read, until `take` asks for them.

    In all else it is the workload.
    """

    def __init__(self, workload: Workload | LazyWorkload) -> None:
        self._workload = workload
        self._held: Columns = {}
        self._first = self._end = 0  # numbers of the requests held

    def __len__(self) -> int:
        return len(self._workload)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)

    def block(self, first: int, count: int) -> Columns:
        """As the workload's; rows that are new are kept.

        Raises:
            ValueError: rows behind which others are missing.
        """
        columns = self._workload.block(first, count)
        end = first + len(columns["sequence"])
        if first > self._end:
            raise ValueError(f"requests {self._end} to {first - 1} were not read")
        if end > self._end:
            more = {name: columns[name][self._end - first :] for name in WORK}
            self._held = joined([self._held, more]) if self._held else more
            self._end = end
        return columns

    def take(self, first: int, count: int) -> Columns:
        """`WORK` of requests from `first` on, as many of `count` as were read.

        Those before `first` are forgotten.
        """
        skipped = max(0, first - self._first)
        self._held = {name: column[skipped:] for name, column in self._held.items()}
        self._first += skipped
        return {name: column[:count] for name, column in self._held.items()}
