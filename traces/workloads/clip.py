"""Bounds of the lengths of requests, and of the options beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from traces.errors import InputError
from traces.workloads.cells import MOST_TOKENS


@dataclass(frozen=True, slots=True)
class Clip:
    """Bounds of the lengths, in tokens. A request emits at least one token, from its prefill."""

    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    min_output_tokens: int = 1
    min_prompt_tokens: int = 1

    def __post_init__(self) -> None:
        for what in ("prompt", "output"):
            low, high = self.bounds(what)
            check_whole(f"min_{what}_tokens", low, 1, MOST_TOKENS)
            if high is not None:
                check_whole(f"max_{what}_tokens", high, low, MOST_TOKENS)

    def bounds(self, what: str) -> tuple[int, int | None]:
        return getattr(self, f"min_{what}_tokens"), getattr(self, f"max_{what}_tokens")


def check_number(name: str, value: Any, bounds: tuple[float, float]) -> None:
    """InputError unless the option `name` is a number within `bounds`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not bounds[0] <= value <= bounds[1]:
        raise InputError(f"{name} is {value!r}; accepted: a number {bounds[0]:g} to {bounds[1]:g}")


def check_whole(name: str, value: Any, low: int, high: int) -> None:
    """InputError unless the option `name` is a whole number `low` to `high`."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise InputError(f"{name} is {value!r}; accepted: a whole number {low} to {high}")
