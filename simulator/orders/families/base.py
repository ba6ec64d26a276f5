"""Order families that build their own tables: sampled slots, beams, scored chains, a user's own.

A family is a frozen dataclass that derives from `OwnOrder` and lives in one file; everything that
takes an order (caches, replays, servers, the live engine) takes it as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    from simulator.orders.scores import BlockScores
    from traces.recordings.recording import Recording

Columns = dict[str, np.ndarray]  # the arrays of an OrderTable, see there


@dataclass(frozen=True, slots=True)
class Draws:
    """Where the drafts of sampled slots come from: keyed by request and position, or a stream."""

    seeds: np.ndarray  # (n,) of the requests
    output_index: np.ndarray  # (n,) of their anchors
    rng: np.random.Generator | None = None  # given: independent draws in place of keyed ones


class OwnOrder:
    """Base of such specs. `version` goes into the cache's key: raise it when tables change."""

    __slots__ = ()
    nested: ClassVar[bool] = True  # any first w nodes may be verified
    sampled: ClassVar[bool] = False  # children are drawn, and verified by recursive rejection
    chain: ClassVar[bool] = False  # never branches
    version: ClassVar[int] = 1

    def resolved(self, recording: Recording) -> OwnOrder:
        """The spec with defaults filled in; InputError if the recording holds too little."""
        return self

    def columns(self, recording: Recording) -> Columns:
        """The arrays of the table over all anchors, hit ranks included."""
        raise NotImplementedError

    def block_columns(
        self, block: BlockScores, realised: np.ndarray | None, draws: Draws | None
    ) -> Columns:
        """The same for n live blocks; realised (n, D) or None: hit ranks are ABSENT."""
        raise NotImplementedError
