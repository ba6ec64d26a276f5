"""Sums by prompt of the requests of finished runs."""

from __future__ import annotations

from collections.abc import Iterable
from math import isclose

import numpy as np

from analysis.paired_requests import FILE_NAME, Run
from traces.common.errors import InputError
from traces.common.intervals import Sums, throughput_sums

THROUGHPUT = "output_throughput"
TIMES = ("tpot", "ttft", "e2el")
FULL_BATCH = "full batch"


def prompt_sums(runs: Iterable[Run], metric: str, prompts: np.ndarray) -> tuple[Sums, int]:
    """The metric over `prompts` (P,), seeds added up, and the requests that count.

    Its value is the one in the summary where there is one seed: tokens per second of the window,
    or the mean over the window's measured requests in milliseconds.

    Raises:
        InputError: throughput of what is no closed loop with a full batch.
    """
    parts = [_throughput(run, prompts) if metric == THROUGHPUT else _times(run, metric, prompts)
             for run in runs]  # fmt: skip
    amount = np.sum([sums.amount for sums, _ in parts], axis=0)
    per = np.sum([sums.per for sums, _ in parts], axis=0)
    return Sums(amount, per), sum(count for _, count in parts)


def _throughput(run: Run, prompts: np.ndarray) -> tuple[Sums, int]:
    window, where = run.summary.data["window"], run.summary.path.parent
    if not run.summary.closed_loop:
        raise InputError(
            f"{where}: throughput of an open loop is its arrivals'; accepted: --metric "
            f"{', '.join(TIMES)}"
        )
    if window["kind"] != FULL_BATCH:
        raise InputError(
            f"{where}: too few requests for a full batch; accepted: --metric {', '.join(TIMES)}, "
            "or runs of more requests"
        )
    span = (window["start_s"], window["end_s"])
    _check_rate(run, span)
    requests = {name: column[run.served] for name, column in run.requests.items()}
    sums = throughput_sums(requests, span, run.summary.data["max_concurrency"], prompts)
    inside = (requests["finish_s"] > span[0]) & (requests["arrival_s"] < span[1])
    return sums, int(np.count_nonzero(inside))


def _check_rate(run: Run, span: tuple[float, float]) -> None:
    """The requests' tokens are those of the summary's rate: both are of one run, and whole."""
    tokens, stated = int(run.requests["window_tokens"].sum()), run.summary.data[THROUGHPUT]
    seconds = span[1] - span[0]
    if not (tokens > 0 < seconds and isclose(tokens, stated * seconds, rel_tol=1e-6)):
        raise InputError(
            f"{run.summary.path.with_name(FILE_NAME)}: {tokens} window_tokens in {seconds:g} s; "
            f"accepted: {stated:g} a second, the summary's {THROUGHPUT}"
        )


def _times(run: Run, metric: str, prompts: np.ndarray) -> tuple[Sums, int]:
    requests = run.requests
    ttft = requests["first_token_s"] - requests["arrival_s"]
    e2el = requests["finish_s"] - requests["arrival_s"]
    later = requests["output_tokens"] - 1
    kept = run.served & requests["measured"]
    kept &= (later > 0) | (metric != "tpot")  # vLLM: one token, no TPOT
    seconds = {"ttft": ttft, "e2el": e2el, "tpot": (e2el - ttft) / np.maximum(later, 1)}[metric]
    row = np.searchsorted(prompts, requests["sequence"][kept])
    sums = Sums(
        np.bincount(row, seconds[kept] * 1e3, len(prompts)),
        np.bincount(row, minlength=len(prompts)).astype(float),
    )
    return sums, int(np.count_nonzero(kept))
