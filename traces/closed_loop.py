"""Throughput of a closed loop as a sum over prompts (Little's law, exact inside a full window).

K clients always have one request each on the way, from the first request sent until one of them
finds none left. In any window [t0, t1] of that time the requests' seconds inside add up to
K (t1 - t0), whatever the server does with them (queueing and prefill are in it). So

    tokens per second = tokens inside / (t1 - t0)
                      = K * sum over prompts of tokens inside / sum over prompts of seconds inside

where a prompt's requests bring their own tokens and their own seconds. That is the number a run
reports, split by prompt with nothing left over, so prompts can be resampled. What a resample holds
fixed is the company a prompt had: a step's time is every request's in it, and another draw of
prompts would have met other steps. In a batch of many that averages out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traces.bootstrap import Sums


def throughput_sums(
    requests: Mapping[str, np.ndarray],
    window: tuple[float, float],
    clients: int,
    prompts: np.ndarray,
) -> Sums:
    """A full-batch window's tokens per second by prompt.

    Args:
        requests: columns (N,) `sequence`, `arrival_s`, `finish_s` and `window_tokens`, the tokens
            that each emitted inside the window.
        window: seconds at which it starts and ends.
        clients: of the closed loop.
        prompts: (P,) ascending, sequences that the sums are over; every request's is among them.
    """
    start_s, end_s = window
    inside_s = np.minimum(requests["finish_s"], end_s) - np.maximum(requests["arrival_s"], start_s)
    row = np.searchsorted(prompts, requests["sequence"])
    return Sums(
        clients * np.bincount(row, requests["window_tokens"], len(prompts)),
        np.bincount(row, np.maximum(inside_s, 0.0), len(prompts)),
    )
