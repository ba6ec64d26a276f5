"""`python -m analysis paired RUN_A RUN_B`: how much faster one policy is, with its interval.

Both served the same prompts in the same order, so prompts are resampled for both at once (see
`traces.common.intervals`). The interval says what other prompts of the same kind would have given.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, groupby
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from analysis.compare.loads import Load, load_of
from analysis.compare.settings import distinctions, label_policies, leaves
from analysis.read.runs import read_runs
from analysis.read.tables import REQUESTS, read_frame
from traces.common.columns import COUNTS, FLAGS, SECONDS, SOME_SECONDS, WHOLE, check_rising
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
from traces.common.table import FORMATS, Table, emit

THROUGHPUT = "output_throughput"
TIMES = ("tpot", "ttft", "e2el")
NAMES = {THROUGHPUT: "output tokens/s"} | {name: f"{name.upper()} mean (ms)" for name in TIMES}
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("a", metavar="RUN_A", type=Path, help="folder of a run, or of several")
    parser.add_argument("b", metavar="RUN_B", type=Path, help="the same with another policy")
    parser.add_argument("--metric", choices=(THROUGHPUT, *TIMES), default=THROUGHPUT)
    parser.add_argument("--resamples", type=int, default=10_000, help="of prompts (default: 10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the resamples (default: 0)")
    parser.add_argument("--format", choices=FORMATS, default="table")


def run(args: argparse.Namespace, command: str) -> list[Path]:
    """Print the comparison; writes no file.

    Raises:
        InputError: runs that differ in more than the policy, or a metric they do not have.
    """
    for name, least in (("resamples", 100), ("seed", 0)):
        if getattr(args, name) < least:
            raise InputError(f"--{name} is {getattr(args, name)}; accepted: at least {least}")
    matched = groupby(match_runs(args.a, args.b), key=lambda pairs: pairs[0].setting)
    settings = [_rows(list(groups), args) for _, groups in matched]
    apart = distinctions([leaves(rows[0].pairs[0].a.data, None) for rows in settings])
    emit([_table(*one, args) for one in zip(settings, apart, strict=True)], args.format)
    return []


# ---------------------------------------------------------------- runs of the same requests


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run's summary, the label of its policy, and the frame of its requests, by number."""

    path: Path
    data: Mapping[str, Any] = field(repr=False)
    label: str
    requests: pandas.DataFrame = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Runs of two policies that served the same requests; `served`: those that both did, (N,)."""

    a: Run
    b: Run
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
        return (*names, json.dumps(rest), self.a.label, self.b.label)


def match_runs(a: Path, b: Path) -> list[list[Pair]]:
    """Pairs below two folders, those that differ in the seed alone together, by setting and load.

    Raises:
        InputError: a run without its equal on the other side, two of one side that are equal but
            for the policy, or requests that are not the same.
    """
    ours, theirs = _side(a), _side(b)
    if len(ours) == len(theirs) == 1:
        both = [side["facts"].iloc[0] for side in (ours, theirs)]
        for name in both[0] | both[1]:
            first, second = (repr(one[name]) if name in one else "not known" for one in both)
            if first != second:
                raise InputError(
                    f"{a} and {b} differ in {name}: {first} and {second}; accepted: runs that "
                    "differ in the policy alone"
                )
    for key in ours.index.symmetric_difference(theirs.index):
        path, other = (ours["path"][key], b) if key in ours.index else (theirs["path"][key], a)
        raise InputError(f"{path}: no run of {other} has its recording, profile, load and seed")
    groups: dict[tuple, list[Pair]] = defaultdict(list)
    for key, one in ours.iterrows():
        pair = _pair(_read(one), _read(theirs.loc[key]))
        groups[one["but_seed"], pair.a.label, pair.b.label].append(pair)
    return sorted(groups.values(), key=lambda pairs: (pairs[0].setting, pairs[0].load))


def _side(folder: Path) -> pandas.DataFrame:
    """Runs below a folder by all that must be equal, with the labels of their policies."""
    runs = read_runs([folder])
    runs["facts"] = runs["data"].map(_facts)
    runs["but_seed"] = runs["facts"].map(lambda one: json.dumps({**one, "seed": None}))
    runs["label"] = label_policies(runs, runs["but_seed"])
    runs.index = runs["facts"].map(json.dumps)
    again = runs.index[runs.index.duplicated()]
    if len(again):
        first, second, *_ = (path.parent.name for path in runs.loc[again[0], "path"])
        raise InputError(
            f"{folder}: {first} and {second} are of the same load and seed; accepted: one policy "
            "with one result for each"
        )
    return runs


def _facts(data: Mapping[str, Any]) -> dict[str, Any]:
    """All that must be equal by name, the policy left out.

    The objectives of goodput are, too: nothing that is compared here depends on them.
    """
    flat = sorted((key, json.loads(text)) for key, text in leaves(data, None).items())
    kept = {key: value for key, value in flat if key != _NAMED}
    return kept | {name: data.get(name) for name in (*_LOAD, "seed")}


def _read(run: pandas.Series) -> Run:
    """The run with its requests; InputError for a summary without a window, or damaged requests.

    The rejected ones are as many as the summary says, and they alone never end.
    """
    path, data, count = run["path"], run["data"], run["rejected"]
    for name in ("kind", "start_s", "end_s"):
        if (data.get("window") or {}).get(name) is None:
            raise InputError(f"{path}: incomplete: window.{name} is missing")
    file, kinds = path.with_name(REQUESTS), _COLUMNS | (_WITH_REJECTED if count else {})
    requests = read_frame(file, kinds, "the requests", data["num_prompts"])
    times = combinations(("arrival_s", "first_token_s", "finish_s"), 2)
    for low, high in (*times, ("window_tokens", "output_tokens")):
        check_rising(file, requests, low, high)
    requests = requests if count else requests.assign(rejected=False)
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
    return Run(path, data, run["label"], requests)


def _pair(a: Run, b: Run) -> Pair:
    """Of the requests that both served; InputError where they differ, or none is left."""
    where = f"{a.path.parent} and {b.path.parent}"
    for name in ["sequence"] if load_of(a.data).closed else ["sequence", "arrival_s"]:
        if not a.requests[name].equals(b.requests[name]):
            raise InputError(
                f"{where} differ in {name} of their requests; accepted: runs that differ in the "
                "policy alone"
            )
    served = ~(a.requests["rejected"] | b.requests["rejected"])
    if not served.any():
        raise InputError(
            f"{where}: no request was served by both; accepted: runs that admit the same requests "
            "(more server.kv_tokens)"
        )
    return Pair(a, b, served)


# ---------------------------------------------------------------- the metric of both


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
    def left_out(self) -> int:
        """Requests of all seeds that A or B rejected."""
        return sum(int((~pair.served).sum()) for pair in self.pairs)


def _rows(groups: Sequence[Sequence[Pair]], args: argparse.Namespace) -> list[PairedRow]:
    """One for each group of pairs; all share the prompts of one setting and their resamples."""
    served = [pair.a.requests["sequence"] for pairs in groups for pair in pairs]
    prompts, draws, rows = np.unique(np.concatenate(served)), (args.resamples, args.seed), []
    for pairs in groups:
        a, ours = _sums([(pair.a, pair.served) for pair in pairs], args.metric, prompts)
        b, theirs = _sums([(pair.b, pair.served) for pair in pairs], args.metric, prompts)
        if not (a.per.any() and b.per.any()):
            where = pairs[0].a.path.parent
            raise InputError(
                f"{where}: no request has a {args.metric}; accepted: runs of more requests"
            )
        both = (a.per > 0) & (b.per > 0)
        gain = a.amount[both] / a.per[both] - b.amount[both] / b.per[both]
        faster = int(np.count_nonzero(gain > 0 if args.metric == THROUGHPUT else gain < 0))
        ratio, difference = paired_ratio(a, b, *draws), paired_difference(a, b, *draws)
        counts = faster, int(np.count_nonzero(both))
        rows.append(PairedRow(pairs, a, b, (ours, theirs), ratio, difference, *counts))
    return rows


def _sums(
    runs: Sequence[tuple[Run, pandas.Series]], metric: str, prompts: np.ndarray
) -> tuple[Sums, int]:
    """The metric over `prompts` (P,), seeds added up, and the requests that count.

    Its value is the one in the summary where there is one seed: tokens per second of the window,
    or the mean over the window's measured requests in milliseconds.
    """
    of = _throughput if metric == THROUGHPUT else _times
    parts = [of(run, served, metric, prompts) for run, served in runs]
    amount, per = (np.sum([getattr(sums, name) for sums, _ in parts], axis=0)
                   for name in ("amount", "per"))  # fmt: skip
    return Sums(amount, per), sum(count for _, count in parts)


def _throughput(run: Run, served: pandas.Series, metric: str, prompts: np.ndarray):
    """InputError for throughput of what is no closed loop with a full batch, or not whole."""
    window, times, where = run.data["window"], ", ".join(TIMES), run.path.parent
    if not load_of(run.data).closed:
        raise InputError(
            f"{where}: throughput of an open loop is its arrivals'; accepted: --metric {times}"
        )
    if window["kind"] != "full batch":
        raise InputError(
            f"{where}: too few requests for a full batch; accepted: --metric {times}, or runs of "
            "more requests"
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
    amount = np.bincount(row, seconds[kept] * 1e3, len(prompts))
    return Sums(amount, np.bincount(row, minlength=len(prompts)).astype(float)), int(kept.sum())


def _geometric_mean(rows: Sequence[PairedRow], args: argparse.Namespace) -> Interval:
    """Of the ratio over the loads of one setting; every load sees the same resample of prompts."""
    weights = resampled_prompts(len(rows[0].a.per), args.resamples, args.seed)
    value = np.exp(np.mean([np.log(row.ratio.value) for row in rows]))
    draws = np.mean([log_ratios(row.a, row.b, weights) for row in rows], axis=0)
    prompts = max(prompts_of(row.a, row.b) for row in rows)
    return interval(float(value), np.exp(draws), prompts)


# ---------------------------------------------------------------- the table


def _table(rows: Sequence[PairedRow], differs: str, args: argparse.Namespace) -> Table:
    """Of one setting; `differs`: what sets it apart from the others that are shown."""
    pair = rows[0].pairs[0]
    data = pair.a.data
    split = f" ({data['trace']['split']} split)" if data["trace"].get("split") else ""
    where = f"{data['trace']['recording']}{split} on {data['latency']['profile']}"
    alike, lines, notes = Counter(row.pairs[0].load[0] for row in rows), [], []
    for row in rows:
        load, requests = row.pairs[0].load
        # With the number of requests where rows differ in nothing else.
        title = load.title if alike[load] == 1 else f"{load.title}, {requests} requests"
        lines.append([title, *_cells(row)])
        if row.left_out:
            asked = sum(len(pair.served) for pair in row.pairs)
            notes.append(
                f"{title}: without {row.left_out} of {asked} requests, which A or B rejected"
            )
    if len(rows) > 1 and all(row.ratio.value > 0 for row in rows):
        mean = _geometric_mean(rows, args)
        notes.append(f"geometric mean of A / B: {mean.value:.4f} (95 %: {_range(mean, 4)})")
    notes.append(
        f"intervals: 95 %, by {args.resamples} resamples of the prompts, the same for A and B; "
        "requests that count are those of the measured window, without warm-up"
    )
    rest = f"; {differs}" if differs else ""
    return Table(
        ("load", "seeds", "A", "B", "A / B", "95 %", "A - B", "95 %", "prompts", "requests",
         "A faster in"),
        lines,
        [_record(row, differs, args.metric) for row in rows],
        caption=f"A {pair.a.label}, B {pair.b.label}: {NAMES[args.metric]}, {where}{rest}",
        label="tab:paired",
        notes=notes,
    )  # fmt: skip


def _cells(row: PairedRow) -> list[str]:
    return [
        str(len(row.pairs)),
        f"{row.a.value:.2f}",
        f"{row.b.value:.2f}",
        "-" if np.isnan(row.ratio.value) else f"{row.ratio.value:.4f}",
        _range(row.ratio, 4),
        f"{row.difference.value:.3f}",
        _range(row.difference, 3),
        str(prompts_of(row.a, row.b)),
        " / ".join(map(str, dict.fromkeys(row.requests))),
        f"{row.faster} of {row.both} prompts",
    ]


def _range(one: Interval, digits: int) -> str:
    return "-" if one.low is None else f"{one.low:.{digits}f} to {one.high:.{digits}f}"


def _record(row: PairedRow, differs: str, metric: str) -> dict[str, Any]:
    pair = row.pairs[0]
    trace, latency = pair.a.data["trace"], pair.a.data["latency"]
    load, requests = pair.load
    record = {
        "recording": trace["recording"],
        "content_hash": trace["content_hash"],
        "split": trace.get("split"),
        "latency_profile": latency["profile"],
        "latency_content_hash": latency.get("content_hash"),
        "setting": differs,
        **load.record,
        "ramp": load.ramp,
        "num_prompts": requests,
        "seeds": len(row.pairs),
        "metric": metric,
        "a": pair.a.label,
        "b": pair.b.label,
        "a_value": row.a.value,
        "b_value": row.b.value,
    }
    for name, one in (("ratio", row.ratio), ("difference", row.difference)):
        record |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
    return record | {
        "prompts": prompts_of(row.a, row.b),
        "faster_prompts": row.faster,
        "compared_prompts": row.both,
        "requests_left_out": row.left_out,
    }
