"""Prompts that are being read, and how many of their tokens a step computes."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field


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
