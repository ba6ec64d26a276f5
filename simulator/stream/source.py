"""A workload that is read once, and what is read of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.ledger import Columns
from simulator.stream.open_requests import WORK
from simulator.workload import LazyWorkload, Workload


class Source:
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
        """As the workload's."""
        columns = self._workload.block(first, count)
        self.note(first, columns)
        return columns

    def note(self, first: int, columns: Columns) -> None:
        """Keep rows from request `first` on that are new.

        Raises:
            ValueError: rows behind which others are missing.
        """
        end = first + len(columns["sequence"])
        if end <= self._end:
            return
        if first > self._end:
            raise ValueError(f"requests {self._end} to {first - 1} were not read")
        more = {name: columns[name][self._end - first :] for name in WORK}
        held = self._held
        self._held = {n: np.concatenate([held[n], more[n]]) for n in WORK} if held else more
        self._end = end

    def take(self, first: int, count: int) -> Columns:
        """`WORK` of requests from `first` on, as many of `count` as were read.

        Those before `first` are forgotten. A workload in memory is read here where the server did
        not.
        """
        if first + count > self._end and isinstance(self._workload, Workload):
            self.block(self._end, first + count - self._end)
        skipped = max(0, first - self._first)
        self._held = {name: column[skipped:] for name, column in self._held.items()}
        self._first += skipped
        return {name: column[:count] for name, column in self._held.items()}
