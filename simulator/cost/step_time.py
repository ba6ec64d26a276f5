"""What a step took, or takes: its parts in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.cost.source import Source


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step, by part, and where they came from.

    chunk_s: of prompt chunks that are read in the same step. executed: tokens that the verify pass
    runs, with the padding of dense packing and of captured graphs.
    """

    draft_s: float
    verify_s: float
    host_s: float
    source: Source
    chunk_s: float = 0.0
    executed: int = 0

    @property
    def total_s(self) -> float:
        """Seconds the step takes."""
        return self.draft_s + self.verify_s + self.host_s + self.chunk_s
