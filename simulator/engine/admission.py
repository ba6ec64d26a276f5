"""Who may come in: blocks of a replica's KV cache, and prompts that are being read.

Paged as vLLM's: a request holds whole blocks. The root's keys and those of draft nodes are written
while they are verified; afterwards only the accepted ones' stay.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class KvBlocks:
    """Blocks of `block` tokens; `total` None: as many as are asked for.

    `watermark`: the share of blocks that admission leaves free for those that run, so that a new
    request does not push out an old one at once (vLLM's block manager).
    """

    total: int | None
    block: int = 16
    watermark: float = 0.01
    held: int = 0

    @property
    def limited(self) -> bool:
        """Whether it can run out."""
        return self.total is not None

    def blocks(self, tokens):
        """Blocks that hold so many tokens, a number or an array."""
        return -(-tokens // self.block)

    def fits(self, tokens: int) -> bool:
        """Whether a request of so many tokens could ever be held."""
        return self.total is None or self.blocks(tokens) <= self.total

    def admits(self, tokens: int, claimed: int, alone: bool) -> bool:
        """Whether a request that needs so many tokens may come in beside `claimed` blocks."""
        spare = 0 if alone else int(np.ceil(self.watermark * self.total))
        return self.total - claimed - self.blocks(tokens) >= spare


@dataclass(slots=True, eq=False)
class Entry:
    """A request outside the running batch: waiting, or being read."""

    column: list[int]  # of its slot, see `simulator.engine.server`
    context: int  # tokens to read: everything before the root
    fresh: bool = True  # output 0 is emitted when it is read; one that was preempted has it already
    read: int = 0
    size: int = 0  # outputs it will emit, for the order of a queue that knows


@dataclass(slots=True)
class Reading:
    """Admitted requests whose prompts are not wholly read, first come first served."""

    entries: deque[Entry] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self.entries)

    def chunks(self, budget: int | None) -> list[tuple[Entry, int]]:
        """The next tokens to read: (entry, tokens) while `budget` lasts; None: whole prompts."""
        left, taken = math.inf if budget is None else budget, []
        for entry in self.entries:
            tokens = min(entry.context - entry.read, left)
            if tokens <= 0:
                break
            taken.append((entry, tokens))
            left -= tokens
        return taken

    def read(self, taken: list[tuple[Entry, int]]) -> list[Entry]:
        """Note that the chunks are computed; returns the entries that are read whole."""
        for entry, tokens in taken:
            entry.read += tokens
        done = []
        while self.entries and self.entries[0].read >= self.entries[0].context:
            done.append(self.entries.popleft())
        return done
