"""Service-level objectives in vLLM's form, and which requests meet them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from traces.common.errors import InputError

OBJECTIVES = ("ttft", "tpot", "e2el")
_ACCEPTED = f'pairs of {", ".join(OBJECTIVES)} and milliseconds, such as "ttft:500 tpot:50"'


def parse_goodput(value: Any) -> dict[str, float] | None:
    """Objectives in milliseconds from ``"ttft:500 tpot:50"``, a list of pairs, or a mapping.

    Raises:
        InputError: an unknown objective, one named twice, or a limit that is not above 0.
    """
    if value is None:
        return None
    limits: dict[str, float] = {}
    for name, limit in _pairs(value):
        if name not in OBJECTIVES or name in limits:
            raise InputError(f"goodput is {value!r}; accepted: {_ACCEPTED}")
        limits[name] = _limit(value, limit)
    if not limits:
        raise InputError(f"goodput is {value!r}; accepted: {_ACCEPTED}, or null")
    return limits


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
        return
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, Sequence):
        raise InputError(f"goodput is {value!r}; accepted: {_ACCEPTED}")
    for word in words:
        if isinstance(word, Mapping):  # `- ttft: 500` in a YAML list
            yield from word.items()
        else:
            name, _, limit = str(word).partition(":")
            yield name, limit


def _limit(value: Any, limit: Any) -> float:
    try:
        number = math.nan if isinstance(limit, bool) else float(limit)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise InputError(f"goodput is {value!r}; accepted: {_ACCEPTED}")
    return number


def meets(limits: Mapping[str, float], times_s: Mapping[str, np.ndarray]) -> np.ndarray:
    """Whether each request meets every objective: (n,) bool.

    A request without a first token or an end (rejected, or still there when the run ended) meets
    none, whatever is asked.

    Args:
        limits: milliseconds by objective.
        times_s: (n,) seconds by objective; a NaN TPOT (of a one-token request) meets any.
    """
    size = len(next(iter(times_s.values())))
    missed = np.zeros(size, bool)
    for name in ("ttft", "e2el"):
        if name in times_s:
            missed |= np.isnan(times_s[name])
    for name, limit_ms in limits.items():
        missed |= times_s[name] * 1e3 > limit_ms
    return ~missed
