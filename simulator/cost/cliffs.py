"""Kernel cliffs: passes of more packed tokens than a fused path takes cost a factor more.

A table sampled at few sizes steps over such a jump, and a straight line fitted to it always does.
Every cliff that a pass is beyond counts, in the order they are given:

    verify = verify * factor + add_ms

Tokens are what is asked of the pass: with the padding of dense packing, without that of captured
graphs. ``per: request`` compares the largest request, ``per: step`` all requests together.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from traces.common.settings import LARGEST_WHOLE, Section, number, whole


class Cliff(Section):
    """One jump of the target's cost, never a fall.

    above: passes with more packed tokens than this pay. factor: from 1. add_ms: from 0.

    Raises:
        InputError: a value outside these.
    """

    PREFIX: ClassVar[str] = "latency.cliffs: "

    above: whole(1, LARGEST_WHOLE)
    factor: number(1, 1e6) = 1.0
    add_ms: number(0, 1e6) = 0.0
    per: Literal["request", "step"] = "request"

    @property
    def of_request(self) -> bool:
        return self.per == "request"
