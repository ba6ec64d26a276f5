"""What a pricing policy remembers between steps, apart for every size of batch."""

from __future__ import annotations

import math
from collections.abc import Callable

HALF_LIFE = 200  # steps, of the common price
SMOOTH = 0.1  # weight of the newest step in the running mean of nodes
SHARP = 0.5  # and of what drafting gains, which follows easy and hard stretches
# What drafting may cost: the next stretch may be easier, and a rest is not free.
MARGIN = 0.05
# Resting steps before drafting is tried again, doubled while it fails, up to REST x batch: alone,
# hard stretches end soon; a batch is as hard as it was.
REST, LONGEST = 5, 80
# Where a drafter must read what it missed: longer, until that takes this share of the rest.
READING = 0.005


class Account:
    """Running figures of the steps of one size of batch."""

    def __init__(self, longest: int = REST) -> None:
        self._longest = longest
        self.nodes_per_request: float | None = None  # running mean
        self.surplus: float | None = None  # of drafting over plain decoding, relative, running mean
        self.budget: float | None = None  # nodes per request that the last step would have taken
        self._worth = self._seconds = 0.0
        self._rested, self._rest = 0, REST

    def rests(self) -> bool:
        """Whether this step should not draft; asked once a step."""
        if self.surplus is None or self.surplus >= -MARGIN:
            self._rested, self._rest = 0, REST
            return False
        self._rested += 1
        if self._rested > self._rest:
            self._rested, self._rest = 0, min(2 * self._rest, self._longest)
            return False
        return True

    def settle(self, nodes_per_request: float, surplus: float) -> None:
        """Note what a drafted step verified and was expected to gain."""
        self.nodes_per_request = _mean(self.nodes_per_request, nodes_per_request, SMOOTH)
        self.surplus = _mean(self.surplus, surplus, SHARP)

    def earn(self, worth: float, seconds: float) -> None:
        """Note what a step committed, and its time."""
        keep = 0.5 ** (1 / HALF_LIFE)
        self._worth, self._seconds = keep * self._worth + worth, keep * self._seconds + seconds

    @property
    def price(self) -> float | None:
        """Worth per second so far."""
        return self._worth / self._seconds if self._seconds else None


class Accounts:
    """One account for batches of 1, 2, 3 to 4, 5 to 8, and so on.

    Args:
        reading: of a batch, the seconds a drafter reads after a long rest, in steps of the rest.
    """

    def __init__(self, reading: Callable[[int], float] = lambda batch: 0.0) -> None:
        self._reading = reading
        self._accounts: dict[int, Account] = {}

    def at(self, batch: int) -> Account:
        """The account of a batch size."""
        size = 1 << math.ceil(math.log2(batch))
        if size not in self._accounts:
            longest = max(min(REST * size, LONGEST), round(self._reading(size) / READING))
            self._accounts[size] = Account(longest)
        return self._accounts[size]


def _mean(before: float | None, new: float, weight: float) -> float:
    return new if before is None else (1 - weight) * before + weight * new
