"""How many digits fitted numbers keep."""

from __future__ import annotations

from collections.abc import Iterable

# Below what the order of a sum can change, so that a fit gives the same file on every machine.
FITTED = 12
SHOWN = 9  # of what is only looked at


def rounded(values: Iterable[float], digits: int = FITTED) -> list[float]:
    """The numbers to `digits` significant ones."""
    return [float(f"{float(value):.{digits}g}") for value in values]
