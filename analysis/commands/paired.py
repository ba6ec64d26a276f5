"""`python -m analysis paired RUN_A RUN_B`: how much faster one policy is, with its interval."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from analysis.compare.paired import (
    THROUGHPUT,
    TIMES,
    PairedRow,
    compare_pairs,
    geometric_mean,
    match_runs,
)
from analysis.compare.settings import distinctions, leaves
from traces.common.errors import InputError
from traces.common.intervals import Interval, prompts_of
from traces.common.table import FORMATS, Table, emit

NAMES = {THROUGHPUT: "output tokens/s"} | {name: f"{name.upper()} mean (ms)" for name in TIMES}
_HEADINGS = ("load", "seeds", "A", "B", "A / B", "95 %", "A - B", "95 %", "prompts", "requests",
             "A faster in")  # fmt: skip


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
    groups = groupby(match_runs(args.a, args.b), key=lambda pairs: pairs[0].setting)
    settings = [
        compare_pairs(list(members), args.metric, args.resamples, args.seed)
        for _, members in groups
    ]
    apart = distinctions([leaves(rows[0].pairs[0].a.data, None) for rows in settings])
    emit(
        [_table(rows, text, args) for rows, text in zip(settings, apart, strict=True)], args.format
    )
    return []


def _table(rows: Sequence[PairedRow], differs: str, args: argparse.Namespace) -> Table:
    """Of one setting; `differs`: what sets it apart from the others that are shown."""
    data, (a, b) = rows[0].pairs[0].a.data, rows[0].pairs[0].labels
    trace = data["trace"]
    split = f" ({trace['split']} split)" if trace.get("split") else ""
    where = f"{trace['recording']}{split} on {data['latency']['profile']}"
    rest = f"; {differs}" if differs else ""
    titles = {id(row): _load_title(row, rows) for row in rows}
    notes = [
        f"{titles[id(row)]}: without {row.left_out} of {row.asked} requests, which A or B rejected"
        for row in rows
        if row.left_out
    ]
    if len(rows) > 1 and all(row.ratio.value > 0 for row in rows):
        mean = geometric_mean(rows, args.resamples, args.seed)
        notes.append(f"geometric mean of A / B: {mean.value:.4f} (95 %: {_range(mean, 4)})")
    notes.append(
        f"intervals: 95 %, by {args.resamples} resamples of the prompts, the same for A and B; "
        "requests that count are those of the measured window, without warm-up"
    )
    return Table(
        _HEADINGS,
        [[titles[id(row)], *_cells(row)] for row in rows],
        [_record(row, differs, args.metric) for row in rows],
        caption=f"A {a}, B {b}: {NAMES[args.metric]}, {where}{rest}",
        label="tab:paired",
        notes=notes,
    )


def _load_title(row: PairedRow, rows: Sequence[PairedRow]) -> str:
    """With the number of requests where rows differ in nothing else."""
    load, requests = row.load
    alike = sum(other.load[0] == load for other in rows)
    return load.title if alike == 1 else f"{load.title}, {requests} requests"


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
    if one.low is None or one.high is None:
        return "-"
    return f"{one.low:.{digits}f} to {one.high:.{digits}f}"


def _record(row: PairedRow, differs: str, metric: str) -> dict:
    data, (load, requests) = row.pairs[0].a.data, row.load
    a, b = row.pairs[0].labels
    return {
        "recording": data["trace"]["recording"],
        "content_hash": data["trace"]["content_hash"],
        "split": data["trace"].get("split"),
        "latency_profile": data["latency"]["profile"],
        "latency_content_hash": data["latency"].get("content_hash"),
        "setting": differs,
        **load.record,
        "ramp": load.ramp,
        "num_prompts": requests,
        "seeds": len(row.pairs),
        "metric": metric,
        "a": a,
        "b": b,
        "a_value": row.a.value,
        "b_value": row.b.value,
        "ratio": row.ratio.value,
        "ratio_low": row.ratio.low,
        "ratio_high": row.ratio.high,
        "difference": row.difference.value,
        "difference_low": row.difference.low,
        "difference_high": row.difference.high,
        "prompts": prompts_of(row.a, row.b),
        "faster_prompts": row.faster,
        "compared_prompts": row.both,
        "requests_left_out": row.left_out,
    }
