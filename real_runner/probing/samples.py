"""Seconds measured of one cell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Samples:
    """One entry per timed step, or per prompt."""

    verify_s: tuple[float, ...] = ()
    draft_s: tuple[float, ...] = ()  # none where nothing is drafted
    prefill_s: tuple[float, ...] = ()

    def __add__(self, other: Samples) -> Samples:
        return Samples(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))
