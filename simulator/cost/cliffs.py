"""Kernel cliffs: passes of more packed tokens than a fused path takes cost a factor more.

A table sampled at few sizes steps over such a jump, and a straight line fitted to it always does.
Every cliff that a pass is beyond counts, in the order they are given:

    verify = verify * factor + add_ms

Tokens are what is asked of the pass: with the padding of dense packing, without that of captured
graphs. ``per: request`` compares the largest request, ``per: step`` all requests together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from traces.common.errors import InputError

PER = ("request", "step")


@dataclass(frozen=True, slots=True)
class Cliff:
    """One jump of the target's cost, never a fall.

    above: passes with more packed tokens than this pay. factor: from 1. add_ms: from 0.

    Raises:
        InputError: a value outside these.
    """

    above: int
    factor: float = 1.0
    add_ms: float = 0.0
    per: str = "request"

    def __post_init__(self) -> None:
        above = self.above
        if isinstance(above, bool) or not isinstance(above, int) or above < 1:
            raise InputError(f"latency.cliffs: above is {above!r}; accepted: tokens, at least 1")
        for name, least in (("factor", 1), ("add_ms", 0)):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and least <= value <= 1e6):
                raise InputError(
                    f"latency.cliffs: {name} is {value!r}; accepted: {least} to {1e6:g}"
                )
        if self.per not in PER:
            raise InputError(f"latency.cliffs: per is {self.per!r}; accepted: {', '.join(PER)}")

    @property
    def of_request(self) -> bool:
        return self.per == "request"


def read_cliffs(value: Any) -> tuple[Cliff, ...]:
    """Cliffs of a ``latency.cliffs`` list; None is an empty one.

    Raises:
        InputError: what is no such list, or an entry without ``above`` or with another key.
    """
    names = [item.name for item in fields(Cliff)]
    accepted = f"a list of mappings of {', '.join(names)}"
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(f"latency.cliffs is {value!r}; accepted: {accepted}")
    for item in value:
        if isinstance(item, Cliff):
            continue
        if not isinstance(item, Mapping) or set(item) - set(names) or "above" not in item:
            raise InputError(f"latency.cliffs has {item!r}; accepted: {accepted}")
    return tuple(item if isinstance(item, Cliff) else Cliff(**item) for item in value)
