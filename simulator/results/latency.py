"""Throughput and latency by vLLM's definitions and key names, from the tables of a run.

Everything counts the window (see `results.window`): tokens of its steps and of the prefills in
it, requests that end in it. Latencies leave out warm-up requests, which start in the middle, and
requests that never end, such as rejected ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.results.facts import Columns, Facts
from simulator.results.fold import fold_facts
from simulator.results.window import Window


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
    rounds, inside = facts.rounds, window.steps(facts)[facts.rounds["step"]]
    count = len(facts.requests["finish_s"])
    decoded = np.bincount(rounds["request"][inside], rounds["committed"][inside], count)
    return decoded.astype(np.int64) + window.admitted(facts)


def throughput(facts: Facts, window: Window) -> dict[str, Any]:
    """Request, output and total token throughput, and what they count."""
    admitted = window.admitted(facts)
    return throughput_numbers(
        window,
        decoded=int(facts.steps["committed"][window.steps(facts)].sum()),
        first=int(np.count_nonzero(admitted)),
        prompts=int(facts.requests["prompt_tokens"][admitted].sum()),
        ended=int(np.count_nonzero(window.requests(facts))),
    )


def throughput_numbers(
    window: Window, *, decoded: int, first: int, prompts: int, ended: int
) -> dict[str, Any]:
    """`throughput` of the window's tokens: of its steps, first ones, of the prompts behind them."""
    return {
        "window": {
            "kind": window.kind,
            "start_s": window.start_s,
            "end_s": window.end_s,
            "requests": ended,
            "tokens": decoded + first,
            "first_tokens": first,  # emitted by prefill, not by steps
        },
        "total_input_tokens": prompts,
        "total_output_tokens": decoded + first,
        "request_throughput": _rate(ended, window.seconds),
        "output_throughput": _rate(decoded + first, window.seconds),
        "total_token_throughput": _rate(decoded + first + prompts, window.seconds),
    }


def _rate(amount: int, seconds: float) -> float | None:
    """None for a run that takes no time (only one-token requests)."""
    return amount / seconds if seconds > 0 else None
