"""Requests that are not settled yet: a table that grows at one end and is thinned out.

And the workload, of which what was read is kept until the table asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.results.facts import REQUEST_COLUMNS, Columns
from simulator.results.fold import ADDED

if TYPE_CHECKING:
    from simulator.engine.arrivals import LazyWorkload, Workload

WORK = ("sequence", "domain", "prompt_tokens", "output_tokens", "warmup")  # of a workload
_ALL = tuple(dict.fromkeys((*REQUEST_COLUMNS, *ADDED)))
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

    def __getitem__(self, name: str) -> np.ndarray:
        """A column, to be read and written."""
        return self._columns[name][: self._count]

    def add(self, request: np.ndarray) -> None:
        """(n,) requests, of larger numbers than those before, and rising.

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
        self["request"][first:] = request

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
        for name in WORK if columns else ():
            self._columns[name][self._known : last] = columns[name]
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
        keep = np.ones(self._count, bool)
        keep[place] = False
        self._known = int(np.count_nonzero(keep[: self._known]))
        kept = np.flatnonzero(keep)
        for column in self._columns.values():
            column[: len(kept)] = column[kept]
        self._count = len(kept)


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
            held = self._held or {name: column[:0] for name, column in more.items()}
            self._held = {name: np.concatenate([held[name], more[name]]) for name in WORK}
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
