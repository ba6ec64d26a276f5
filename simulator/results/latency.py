"""Latencies of requests by vLLM's definitions and key names, and the objectives they are held to.

They leave out warm-up requests, which start in the middle, and requests that never end, such as
rejected ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simulator.results.facts import Columns, Facts
from simulator.results.fold import fold_facts
from simulator.results.window import Window
from traces.common.errors import InputError

OBJECTIVES = ("ttft", "tpot", "e2el")


def request_times(requests: Columns) -> Columns:
    """Seconds per request: ttft, tpot (NaN for one output token), e2el; NaN without an end."""
    ttft = requests["first_token_s"] - requests["arrival_s"]
    e2el = requests["finish_s"] - requests["arrival_s"]
    later = requests["output_tokens"] - 1
    tpot = np.divide(e2el - ttft, later, out=np.full(len(later), np.nan), where=later > 0)
    return {"ttft": ttft, "tpot": tpot, "e2el": e2el}


def measured(facts: Facts, window: Window) -> np.ndarray:
    """Requests whose latency counts: they end inside the window and are no warm-up; (N,) bool."""
    return window.requests(facts) & ~facts.requests["warmup"]


def chunk_gaps(facts: Facts, window: Window) -> np.ndarray:
    """Seconds between the chunks a request emits, the first from its first token; see `fold`.

    Those that end with a step of the window, in the order of its rounds; no warm-up requests.
    """
    return fold_facts(facts, window)[1].gaps_s


def window_tokens(facts: Facts, window: Window) -> np.ndarray:
    """Tokens that each request emits inside the window: (N,) int64, `throughput`'s by request."""
    return fold_facts(facts, window)[0]["in_tokens"] + window.admitted(facts)


def parse_goodput(value: Any, also: Sequence[str] = ()) -> dict[str, float] | None:
    """Objectives in milliseconds from ``"ttft:500 tpot:50"``, a list of pairs, or a mapping.

    also: names that are accepted besides `OBJECTIVES`.

    Raises:
        InputError: an unknown objective, one named twice, or a limit that is not above 0.
    """
    if value is None:
        return None
    words = value.split() if isinstance(value, str) else value
    pairs, limits, names = [], {}, (*OBJECTIVES, *also)
    try:
        for word in [words] if isinstance(words, Mapping) else words:
            # `- ttft: 500` in a YAML list, or a text
            pairs += word.items() if isinstance(word, Mapping) else [str(word).split(":")]
        limits = {name: math.nan if limit is True else float(limit) for name, limit in pairs}
    except (TypeError, ValueError):
        pass
    known = limits.keys() <= {*names} and len(limits) == len(pairs)
    if not limits or not known or not all(0 < limit < math.inf for limit in limits.values()):
        raise InputError(
            f"goodput is {value!r}; accepted: pairs of {', '.join(names)} and milliseconds, "
            'such as "ttft:500 tpot:50", or null'
        )
    return limits


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
