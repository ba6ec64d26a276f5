"""Finished runs of two policies, matched by everything but the policy, and their sums by prompt."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np

from analysis.paired_requests import FILE_NAME, Run, read_run
from analysis.summaries import Summary, read_summaries
from traces.bootstrap import Sums
from traces.closed_loop import throughput_sums
from traces.errors import InputError

THROUGHPUT = "output_throughput"
TIMES = ("tpot", "ttft", "e2el")
FULL_BATCH = "full batch"
_NAMED = "recording", "unique_prompts"  # of `trace`: a name, and what follows from the rest
_LOAD = (
    *("max_concurrency", "request_rate", "burstiness", "num_prompts", "ramp", "workload"),
    *("server", "what_if", "ttft_note"),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Runs of two policies that served the same requests."""

    a: Run
    b: Run

    @property
    def left_out(self) -> int:
        """Requests that one of the two rejected."""
        return int(np.count_nonzero(~self.a.served))


def match_runs(a: Path, b: Path) -> list[list[Pair]]:
    """Pairs below two folders, those that differ in the seed alone together, by load.

    Raises:
        InputError: a run without its equal on the other side, two of one side that are equal but
            for the policy, or requests that are not the same.
    """
    ours, theirs = _by_setting(a), _by_setting(b)
    if len(ours) == len(theirs) == 1:
        _same(a, b, next(iter(ours.values())), next(iter(theirs.values())))
    for key in ours.keys() ^ theirs.keys():
        run, other = (ours[key], b) if key in ours else (theirs[key], a)
        raise InputError(f"{run.path}: no run of {other} has its recording, profile, load and seed")
    groups: dict[str, list[Pair]] = defaultdict(list)
    for key, run in ours.items():
        pair = Pair(read_run(run), read_run(theirs[key]))
        _same_requests(pair)
        pair = _both_served(pair)
        groups[json.dumps([one for one in json.loads(key) if one[0] != "seed"])].append(pair)
    return sorted(groups.values(), key=_order)


def setting_of(pairs: Sequence[Pair]) -> tuple:
    """Pairs of one setting share their prompts, whatever the load."""
    data = pairs[0].a.summary.data
    trace = data["trace"]
    where = (trace["content_hash"], trace.get("split"), str(trace.get("domains")))
    return (*where, data["latency"]["profile"])


def _order(pairs: Sequence[Pair]) -> tuple:
    run = pairs[0].a.summary
    setting = (run.data["trace"]["recording"], run.data["latency"]["profile"])
    domains = str(run.data["trace"].get("domains"))
    return (*setting, domains, run.request_rate, run.data["max_concurrency"])


def _by_setting(folder: Path) -> dict[str, Summary]:
    found: dict[str, Summary] = {}
    for run in read_summaries([folder]):
        other = found.setdefault(json.dumps(_facts(run)), run)
        if other is not run:
            raise InputError(
                f"{folder}: {other.path.parent.name} and {run.path.parent.name} are of the same "
                "load and seed; accepted: one policy with one result for each"
            )
    return found


def _facts(run: Summary) -> list[tuple[str, Any]]:
    """(name, value) of all that must be equal, the policy left out."""
    data = run.data
    nodes = {name: data.get(name) or {} for name in ("trace", "latency", "server")}
    flat = [(f"{n}.{key}", value) for n, node in nodes.items() for key, value in node.items()]
    kept = [one for one in flat if one[0] not in [f"trace.{name}" for name in _NAMED]]
    return sorted(kept) + [(name, data.get(name)) for name in (*_LOAD, "seed")]


def _same(a: Path, b: Path, ours: Summary, theirs: Summary) -> None:
    first, second = dict(_facts(ours)), dict(_facts(theirs))
    for name in first | second:
        if first.get(name) != second.get(name):
            raise InputError(
                f"{a} and {b} differ in {name}: {first.get(name)!r} and {second.get(name)!r}; "
                "accepted: runs that differ in the policy alone"
            )


def _both_served(pair: Pair) -> Pair:
    """Requests that both served; InputError where there are none."""
    served = pair.a.served & pair.b.served
    if not served.any():
        raise InputError(
            f"{pair.a.summary.path.parent} and {pair.b.summary.path.parent}: no request was served "
            "by both; accepted: runs that admit the same requests (more server.kv_tokens)"
        )
    return Pair(replace(pair.a, served=served), replace(pair.b, served=served))


def _same_requests(pair: Pair) -> None:
    a, b = pair.a, pair.b
    names = ["sequence"] if a.summary.closed_loop else ["sequence", "arrival_s"]
    for name in names:
        if not np.array_equal(a.requests[name], b.requests[name]):
            raise InputError(
                f"{a.summary.path.parent} and {b.summary.path.parent} differ in {name} of their "
                "requests; accepted: runs that differ in the policy alone"
            )


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
