"""Two policies that served the same requests: ratio, difference and intervals over prompts.

Both served the same prompts in the same order, so prompts are resampled for both at once (see
`traces.bootstrap`). The interval says what other prompts of the same kind would have given.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from analysis.compare.loads import Load, load_of
from analysis.compare.settings import label_policies, leaves
from analysis.read.runs import read_runs
from analysis.read.tables import REQUESTS, read_frame
from traces.common.columns import COUNTS, FLAGS, SECONDS, SOME_SECONDS, WHOLE
from traces.common.errors import InputError
from traces.common.intervals import (
    Interval,
    Sums,
    interval,
    log_ratios,
    paired_difference,
    paired_ratio,
    prompts_of,
    resampled_prompts,
    throughput_sums,
)

THROUGHPUT = "output_throughput"
TIMES = ("tpot", "ttft", "e2el")
FULL_BATCH = "full batch"
_NAMED = "trace.recording"  # a recording may lie elsewhere under another name
_LOAD = ("max_concurrency", "request_rate", "burstiness", "num_prompts", "ramp")
_COLUMNS = {
    "sequence": WHOLE,
    "arrival_s": SECONDS,
    "first_token_s": SOME_SECONDS,  # none of a request that was there before
    "finish_s": SECONDS,
    "output_tokens": COUNTS,
    "measured": FLAGS,
    "window_tokens": WHOLE,
}
# Of a run that rejected some: they never end, and emit nothing.
_WITH_REJECTED = {"finish_s": SOME_SECONDS, "output_tokens": WHOLE, "rejected": FLAGS}


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run's summary and the frame of its requests, by number."""

    path: Path
    data: Mapping[str, Any] = field(repr=False)
    requests: pandas.DataFrame = field(repr=False)

    @property
    def folder(self) -> Path:
        return self.path.parent


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Runs of two policies that served the same requests; `served`: those that both did, (N,)."""

    a: Run
    b: Run
    labels: tuple[str, str]
    served: pandas.Series

    @property
    def load(self) -> tuple[Load, int]:
        """And how many requests were sent."""
        return load_of(self.a.data), self.a.data["num_prompts"]

    @property
    def setting(self) -> tuple:
        """The same policies and setting share their prompts, whatever the load."""
        data = self.a.data
        rest = {key: value for key, value in _facts(data).items() if key not in (*_LOAD, "seed")}
        names = data["trace"]["recording"], data["latency"]["profile"]
        return (*names, json.dumps(rest), *self.labels)


@dataclass(frozen=True, slots=True)
class PairedRow:
    """A and B at one load, all seeds together."""

    pairs: Sequence[Pair]
    a: Sums
    b: Sums
    requests: tuple[int, int]
    ratio: Interval
    difference: Interval
    faster: int  # prompts
    both: int  # prompts that both have a value for

    @property
    def load(self) -> tuple[Load, int]:
        return self.pairs[0].load

    @property
    def left_out(self) -> int:
        """Requests of all seeds that A or B rejected."""
        return sum(int((~pair.served).sum()) for pair in self.pairs)

    @property
    def asked(self) -> int:
        """Requests of all seeds."""
        return sum(len(pair.served) for pair in self.pairs)


def match_runs(a: Path, b: Path) -> list[list[Pair]]:
    """Pairs below two folders, those that differ in the seed alone together, by setting and load.

    Raises:
        InputError: a run without its equal on the other side, two of one side that are equal but
            for the policy, or requests that are not the same.
    """
    ours, theirs = _side(a), _side(b)
    if len(ours) == len(theirs) == 1:
        _same(a, b, ours.iloc[0]["data"], theirs.iloc[0]["data"])
    for key in ours.index.symmetric_difference(theirs.index):
        path, other = (ours["path"][key], b) if key in ours.index else (theirs["path"][key], a)
        raise InputError(f"{path}: no run of {other} has its recording, profile, load and seed")
    groups: dict[tuple, list[Pair]] = defaultdict(list)
    for key, one in ours.iterrows():
        other = theirs.loc[key]
        pair = _pair(_read(one), _read(other), (one["label"], other["label"]))
        groups[one["but_seed"], *pair.labels].append(pair)
    return sorted(groups.values(), key=lambda pairs: (pairs[0].setting, pairs[0].load))


def _side(folder: Path) -> pandas.DataFrame:
    """Runs below a folder by all that must be equal, with the labels of their policies."""
    runs = read_runs([folder])
    facts = runs["data"].map(_facts)
    runs["but_seed"] = facts.map(lambda one: json.dumps({**one, "seed": None}))
    runs["label"] = label_policies(runs, runs["but_seed"])
    runs["key"] = facts.map(json.dumps)
    again = runs["key"].duplicated()
    if again.any():
        second = runs[again].iloc[0]
        first = runs[runs["key"] == second["key"]].iloc[0]
        raise InputError(
            f"{folder}: {first['path'].parent.name} and {second['path'].parent.name} are of the "
            "same load and seed; accepted: one policy with one result for each"
        )
    return runs.set_index("key")


def _facts(data: Mapping[str, Any]) -> dict[str, Any]:
    """All that must be equal by name, the policy left out.

    The objectives of goodput are, too: nothing that is compared here depends on them.
    """
    flat = sorted((key, json.loads(text)) for key, text in leaves(data, None).items())
    kept = {key: value for key, value in flat if key != _NAMED}
    return kept | {name: data.get(name) for name in (*_LOAD, "seed")}


def _same(a: Path, b: Path, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    first, second = _facts(ours), _facts(theirs)
    for name in first | second:
        values = [repr(one[name]) if name in one else "not known" for one in (first, second)]
        if values[0] != values[1]:
            raise InputError(
                f"{a} and {b} differ in {name}: {values[0]} and {values[1]}; "
                "accepted: runs that differ in the policy alone"
            )


def _read(run: pandas.Series) -> Run:
    """The run with its requests; InputError for a summary without a window, or damaged requests."""
    path, data = run["path"], run["data"]
    for name in ("kind", "start_s", "end_s"):
        if (data.get("window") or {}).get(name) is None:
            raise InputError(f"{path}: incomplete: window.{name} is missing")
    file, rejected = path.with_name(REQUESTS), run["rejected"]
    kinds = _COLUMNS | (_WITH_REJECTED if rejected else {})
    requests = read_frame(file, kinds, "the requests", data["num_prompts"])
    for low, high in combinations(("arrival_s", "first_token_s", "finish_s"), 2):
        _check_rising(file, requests, low, high)
    _check_rising(file, requests, "window_tokens", "output_tokens")
    requests = requests if rejected else requests.assign(rejected=False)
    _check_rejected(file, requests, rejected)
    return Run(path, data, requests)


def _check_rising(file: Path, requests: pandas.DataFrame, low: str, high: str) -> None:
    """InputError for the first row whose `high` is below its `low`; NaN passes."""
    late = requests[low] > requests[high] + 1e-9 * requests[low].abs()  # sums of seconds round
    if late.any():
        row = requests.loc[late.idxmax()]
        raise InputError(
            f"{file}: row {late.idxmax()}, column {high}: {row[high]}, expected at least {low}, "
            f"{row[low]}"
        )


def _check_rejected(file: Path, requests: pandas.DataFrame, count: int) -> None:
    """The rejected ones are as many as the summary says, and they alone never end."""
    refused = requests["rejected"]
    if refused.sum() != count:
        raise InputError(
            f"{file}: {refused.sum()} rejected requests, expected the summary's {count}"
        )
    for name, right in (
        ("finish_s", requests["finish_s"].isna() == refused),
        ("output_tokens", (requests["output_tokens"] == 0) == refused),
        ("measured", ~(requests["measured"] & refused)),
    ):
        if not right.all():
            row = right.idxmin()
            kind = "a rejected" if refused[row] else "a served"
            raise InputError(
                f"{file}: row {row}, column {name}: {requests[name][row]}, expected that of {kind} "
                "request"
            )


def _pair(a: Run, b: Run, labels: tuple[str, str]) -> Pair:
    """Of the requests that both served; InputError where they differ, or none is left."""
    closed = load_of(a.data).closed
    for name in ["sequence"] if closed else ["sequence", "arrival_s"]:
        if not a.requests[name].equals(b.requests[name]):
            raise InputError(
                f"{a.folder} and {b.folder} differ in {name} of their requests; accepted: runs "
                "that differ in the policy alone"
            )
    served = ~(a.requests["rejected"] | b.requests["rejected"])
    if not served.any():
        raise InputError(
            f"{a.folder} and {b.folder}: no request was served by both; accepted: runs that admit "
            "the same requests (more server.kv_tokens)"
        )
    return Pair(a, b, labels, served)


def compare_pairs(
    groups: Sequence[Sequence[Pair]], metric: str, resamples: int, seed: int
) -> list[PairedRow]:
    """One row per group of pairs; all share the prompts of one setting and their resamples."""
    served = [pair.a.requests["sequence"] for pairs in groups for pair in pairs]
    prompts = np.unique(np.concatenate(served))
    return [_row(pairs, metric, prompts, resamples, seed) for pairs in groups]


def _row(pairs: Sequence[Pair], metric: str, prompts: np.ndarray, resamples: int, seed: int):
    a, ours = _sums([(pair.a, pair.served) for pair in pairs], metric, prompts)
    b, theirs = _sums([(pair.b, pair.served) for pair in pairs], metric, prompts)
    if not (a.per.any() and b.per.any()):
        where = pairs[0].a.folder
        raise InputError(f"{where}: no request has a {metric}; accepted: runs of more requests")
    both = (a.per > 0) & (b.per > 0)
    gain = a.amount[both] / a.per[both] - b.amount[both] / b.per[both]
    return PairedRow(
        pairs=pairs,
        a=a,
        b=b,
        requests=(ours, theirs),
        ratio=paired_ratio(a, b, resamples, seed),
        difference=paired_difference(a, b, resamples, seed),
        faster=int(np.count_nonzero(gain > 0 if metric == THROUGHPUT else gain < 0)),
        both=int(np.count_nonzero(both)),
    )


def _sums(
    runs: Sequence[tuple[Run, pandas.Series]], metric: str, prompts: np.ndarray
) -> tuple[Sums, int]:
    """The metric over `prompts` (P,), seeds added up, and the requests that count.

    Its value is the one in the summary where there is one seed: tokens per second of the window,
    or the mean over the window's measured requests in milliseconds.
    """
    of = _throughput if metric == THROUGHPUT else _times
    parts = [of(run, served, metric, prompts) for run, served in runs]
    amount = np.sum([sums.amount for sums, _ in parts], axis=0)
    per = np.sum([sums.per for sums, _ in parts], axis=0)
    return Sums(amount, per), sum(count for _, count in parts)


def _throughput(run: Run, served: pandas.Series, metric: str, prompts: np.ndarray):
    """InputError for throughput of what is no closed loop with a full batch, or not whole."""
    window, times = run.data["window"], ", ".join(TIMES)
    if not load_of(run.data).closed:
        raise InputError(
            f"{run.folder}: throughput of an open loop is its arrivals'; accepted: --metric {times}"
        )
    if window["kind"] != FULL_BATCH:
        raise InputError(
            f"{run.folder}: too few requests for a full batch; accepted: --metric {times}, or runs "
            "of more requests"
        )
    start_s, end_s = window["start_s"], window["end_s"]
    tokens, stated = int(run.requests["window_tokens"].sum()), run.data[metric]
    if not (tokens > 0 and end_s > start_s
            and isclose(tokens, stated * (end_s - start_s), rel_tol=1e-6)):  # fmt: skip
        raise InputError(
            f"{run.path.with_name(REQUESTS)}: {tokens} window_tokens in {end_s - start_s:g} s; "
            f"accepted: {stated:g} a second, the summary's {metric}"
        )
    own = run.requests[served]
    columns = {name: own[name].to_numpy() for name in own}
    sums = throughput_sums(columns, (start_s, end_s), run.data["max_concurrency"], prompts)
    inside = (own["finish_s"] > start_s) & (own["arrival_s"] < end_s)
    return sums, int(inside.sum())


def _times(run: Run, served: pandas.Series, metric: str, prompts: np.ndarray):
    requests = run.requests
    ttft_s = requests["first_token_s"] - requests["arrival_s"]
    e2el_s = requests["finish_s"] - requests["arrival_s"]
    later = requests["output_tokens"] - 1
    kept = served & requests["measured"]
    if metric == "tpot":  # vLLM: one token, no TPOT
        kept &= later > 0
    tpot_s = (e2el_s - ttft_s) / later.clip(lower=1)
    seconds = {"ttft": ttft_s, "e2el": e2el_s, "tpot": tpot_s}[metric]
    row = np.searchsorted(prompts, requests.loc[kept, "sequence"])
    sums = Sums(
        np.bincount(row, seconds[kept] * 1e3, len(prompts)),
        np.bincount(row, minlength=len(prompts)).astype(float),
    )
    return sums, int(kept.sum())


def geometric_mean(rows: Sequence[PairedRow], resamples: int, seed: int) -> Interval:
    """Of the ratio over the loads of one setting; every load sees the same resample of prompts."""
    weights = resampled_prompts(len(rows[0].a.per), resamples, seed)
    value = np.exp(np.mean([np.log(row.ratio.value) for row in rows]))
    draws = np.mean([log_ratios(row.a, row.b, weights) for row in rows], axis=0)
    prompts = max(prompts_of(row.a, row.b) for row in rows)
    return interval(float(value), np.exp(draws), prompts)
