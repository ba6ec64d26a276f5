"""What a step took, or takes: its parts in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag

# ---------------- Where a cost came from, and what share of a run each origin makes up.


class Source(IntFlag):
    """Origin of a step's cost; MODELLED and CLAMPED can hold together, the others stand alone.

    MEASURED: a measured size, or a step the engine pads to one. INTERPOLATED: between measured
    sizes of one regime. MODELLED: beyond the table. CLAMPED: the context was outside the table.
    """

    MEASURED = 1
    INTERPOLATED = 2
    MODELLED = 4
    CLAMPED = 8


_WEAK = Source.MODELLED | Source.CLAMPED
# The origin of a sum, by the bits of its parts: the weakest speaks for the whole. IntFlag
# arithmetic is slow: hot paths OR plain ints and look the answer up here.
RESOLVED: tuple[Source, ...] = tuple(
    Source(bits & _WEAK or bits & Source.INTERPOLATED or Source.MEASURED) for bits in range(16)
)


def shares(steps: Mapping[int, float], seconds: Mapping[int, float]) -> dict[str, dict[str, float]]:
    """Shares of steps and of time by origin.

    Args:
        steps: number of steps by Source (as reported by ``StepTime.source``).
        seconds: their summed time by Source.

    Returns:
        ``{"steps": {...}, "time": {...}}``, each with measured, interpolated, modelled and
        clamped. A modelled AND clamped step counts under both, so the four can exceed one.
    """
    found = {}
    for name, amounts in (("steps", steps), ("time", seconds)):
        whole = sum(amounts.values()) or 1.0
        found[name] = {
            flag.name.lower(): sum(value for key, value in amounts.items() if key & flag) / whole
            for flag in Source
        }
    return found


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
