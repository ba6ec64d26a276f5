"""Names near to one that is none of them, for refusals."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

_ALIKE = 0.6  # share of letters in common


def nearest_first(value: str, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Names that are near `value`, nearest first, and all others, in their order.

    Near: one contains the other, or they are spelt alike.
    """
    found, others = [], []
    for name in names:
        share = SequenceMatcher(None, value.lower(), name.lower()).ratio()
        within = bool(value) and (value in name or name in value)
        if within or share >= _ALIKE:
            found.append((not within, -share, name))
        else:
            others.append(name)
    return [name for *_, name in sorted(found)], others
