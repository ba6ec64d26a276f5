"""Prompts that are being read, and how many of their tokens a step computes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from simulator.cost import StepCost

COLUMN = list[int]  # a slot's column, see `simulator.engine.server`
UNLIMITED = 1 << 60


@dataclass(slots=True, eq=False)
class Entry:
    """A request outside the running batch: waiting, or being read."""

    column: COLUMN
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
        left = UNLIMITED if budget is None else budget
        taken = []
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


def chunks_s(cost: StepCost, taken: list[tuple[Entry, int]]) -> float:
    """Seconds of chunks computed in a step of their own: one pass, its weights read once."""
    return cost.chunks_s([(entry.read, tokens) for entry, tokens in taken]) if taken else 0.0
