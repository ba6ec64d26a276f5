"""Throughput and latency by vLLM's definitions and key names.

Everything counts the window (see `results.window`): tokens of its steps and of the prefills in
it, requests that end in it. Latencies leave out warm-up requests, which start in the middle, and
requests that never end, such as rejected ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.results.facts import Facts
from simulator.results.goodput import meets
from simulator.results.quantiles import PERCENTILES, statistics
from simulator.results.sums import PARTS, request_times
from simulator.results.window import Window


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


def window_tokens(facts: Facts, window: Window) -> np.ndarray:
    """Tokens that each request emits inside the window: (N,) int64, `throughput`'s by request."""
    rounds, inside = facts.rounds, window.steps(facts)[facts.rounds["step"]]
    count = len(facts.requests["finish_s"])
    decoded = np.bincount(rounds["request"][inside], rounds["committed"][inside], count)
    return decoded.astype(np.int64) + window.admitted(facts)


def measured(facts: Facts, window: Window) -> np.ndarray:
    """Requests whose latency counts: they end inside the window and are no warm-up; (N,) bool."""
    return window.requests(facts) & ~facts.requests["warmup"]


def latency(facts: Facts, window: Window) -> dict[str, float | None]:
    """Mean, median, std (population) and percentiles of TTFT, TPOT, ITL and E2EL in ms."""
    counted = measured(facts, window)
    times = {name: values[counted] for name, values in request_times(facts.requests).items()}
    times["tpot"] = times["tpot"][~np.isnan(times["tpot"])]  # vLLM: one-token requests left out
    times["itl"] = chunk_gaps(facts, window)
    result = {}
    for name, seconds in times.items():
        result |= statistics(name, seconds * 1e3)
    return result


def chunk_gaps(facts: Facts, window: Window) -> np.ndarray:
    """Seconds between the chunks a request emits, the first from its first token.

    Those that end with a step of the window, in the order of its rounds; no warm-up requests. A
    gap is the step and what kept it waiting: prefill of other requests (nothing where that is
    free, as every running request is in every step), or steps that the request was not in because
    it had been pushed out.
    """
    step, request = facts.rounds["step"], facts.rounds["request"]
    gap_s = facts.steps["step_s"][step] + waits(facts)
    return gap_s[window.steps(facts)[step] & ~facts.requests["warmup"][request]]


def waits(facts: Facts) -> np.ndarray:
    """Seconds from the end of a request's chunk to the start of its next step: (rounds,)."""
    order = np.argsort(facts.rounds["request"], kind="stable")  # steps stay in order
    step, request = facts.rounds["step"][order], facts.rounds["request"][order]
    begin_s = facts.steps["time_s"][step]
    end_s = begin_s + facts.steps["step_s"][step]
    later = np.zeros(len(order), bool)
    later[1:] = request[1:] == request[:-1]
    before_s = np.where(later, np.roll(end_s, 1), facts.requests["first_token_s"][request])
    waited_s = np.empty(len(order))
    waited_s[order] = begin_s - before_s
    return waited_s


def request_goodput(facts: Facts, window: Window, limits: dict[str, float] | None) -> float | None:
    """Requests per second that meet every objective; None without objectives.

    The window's request throughput, times the share of its measured requests that meet them (a
    warm-up request takes a place but cannot be judged). A rejected request never ends and meets
    none, so it adds nothing.
    """
    counted = measured(facts, window)
    if limits is None or not counted.any() or window.seconds <= 0:
        return None
    times = {name: values[counted] for name, values in request_times(facts.requests).items()}
    ended = np.count_nonzero(window.requests(facts))
    return float(meets(limits, times).mean() * ended / window.seconds)


def step_parts(facts: Facts, window: Window) -> dict[str, float | None]:
    """Mean milliseconds of a step by part: draft, verify, host, prefill (chunks), total."""
    inside = window.steps(facts)
    if not inside.any():
        return dict.fromkeys(PARTS)
    return {key: float(facts.steps[name][inside].mean() * 1e3) for key, name in PARTS.items()}


def prefill_ms(facts: Facts, window: Window) -> float:
    """Milliseconds of the window's prefills, warm-up requests' too: from admission to output 0.

    With chunks that is longer than what is computed, and prompts are read side by side.
    """
    inside = window.prefilled(facts)
    requests = facts.requests
    return float((requests["first_token_s"] - requests["admitted_s"])[inside].sum() * 1e3)


__all__ = [
    "PERCENTILES",
    "chunk_gaps",
    "latency",
    "measured",
    "prefill_ms",
    "request_goodput",
    "request_times",
    "statistics",
    "step_parts",
    "throughput",
    "throughput_numbers",
    "waits",
    "window_tokens",
]
