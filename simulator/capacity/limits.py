"""Objectives of a search: those of a request, and one for the gaps between chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.goodput import parse_goodput
from traces.errors import InputError

ITL = "itl"  # judged over gaps, not over requests: no objective of a request's goodput


def read_limits(value: Any) -> dict[str, float]:
    """Objectives in ms from `goodput`, which may name `itl` besides those of a request.

    Raises:
        InputError: no objective, an unknown one, one named twice, or a bad limit.
    """
    if value is None:
        raise InputError(
            "goodput is null; accepted with task=capacity: objectives in milliseconds, such as "
            '"ttft:500 tpot:50 itl:100"'
        )
    words = _words(value)
    gaps = [word for word in words if word.partition(":")[0] == ITL]
    rest = [word for word in words if word not in gaps]
    limits = {} if gaps and not rest else parse_goodput(rest or value)
    if len(gaps) > 1:
        raise InputError(f"goodput is {value!r}; accepted: {ITL} once")
    if gaps:
        number = gaps[0].partition(":")[2]
        limits = limits | {ITL: parse_goodput([f"e2el:{number}"])["e2el"]}
    return limits


def _words(value: Any) -> list[str]:
    """``NAME:LIMIT`` for each objective; nothing for what `parse_goodput` will refuse."""
    if isinstance(value, Mapping):
        value = [value]
    parts = value.split() if isinstance(value, str) else value
    if not isinstance(parts, list):
        return []
    words = []
    for part in parts:
        pairs = [f"{k}:{v}" for k, v in part.items()] if isinstance(part, Mapping) else [str(part)]
        words += pairs
    return words
