"""Events noted one by one, until there are enough of them to be taken as columns."""

from __future__ import annotations

import numpy as np


class Events:
    """Lists of (request, value) by name, in the order they were noted."""

    def __init__(self) -> None:
        self._lists: dict[str, list[tuple[int, float]]] = {}
        self.count = 0

    def add(self, name: str, request: int, value: float = 1.0) -> None:
        """Note one."""
        self._lists.setdefault(name, []).append((request, value))
        self.count += 1

    def take(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(n,) requests and (n,) values of `name`, which are forgotten here."""
        pairs = self._lists.pop(name, [])
        self.count -= len(pairs)
        columns = np.array(pairs, float).reshape(-1, 2)
        return columns[:, 0].astype(np.int64), columns[:, 1]
