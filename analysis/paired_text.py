"""Paired comparisons as text: a rich table, Markdown, CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from analysis.paired_rows import Row, geometric_mean
from analysis.paired_runs import THROUGHPUT, TIMES, setting_of
from analysis.tables import PIPED_WIDTH, markdown_line
from traces.bootstrap import Interval, prompts_of

NAMES = {THROUGHPUT: "output tokens/s"} | {name: f"{name.upper()} mean (ms)" for name in TIMES}
HEADER = ("load", "seeds", "A", "B", "A / B", "95 %", "A - B", "95 %", "prompts", "requests",
          "A faster in")  # fmt: skip


def _cells(row: Row) -> tuple[str, ...]:
    requests = " / ".join(map(str, dict.fromkeys(row.requests)))
    return (
        _load(row),
        str(len(row.pairs)),
        f"{row.a.value:.2f}",
        f"{row.b.value:.2f}",
        _number(row.ratio.value, 4),
        _range(row.ratio, 4),
        f"{row.difference.value:.3f}",
        _range(row.difference, 3),
        str(prompts_of(row.a, row.b)),
        requests,
        f"{row.faster} of {row.both} prompts",
    )


def _load(row: Row) -> str:
    run = row.pairs[0].a.summary
    if run.closed_loop:
        return f"concurrency {run.data['max_concurrency']}"
    return f"{run.request_rate:g} requests/s" if run.request_rate else "all at one time"


def _number(value: float, digits: int) -> str:
    return "-" if np.isnan(value) else f"{value:.{digits}f}"


def _range(one: Interval, digits: int) -> str:
    if one.low is None or one.high is None:
        return "-"
    return f"{one.low:.{digits}f} to {one.high:.{digits}f}"


def _notes(rows: Sequence[Row], resamples: int, seed: int) -> list[str]:
    """What stands under the rows of one setting."""
    notes = [
        f"{_load(row)}: without {row.left_out} of {_asked(row)} requests, which A or B rejected"
        for row in rows
        if row.left_out
    ]
    mean = _mean_line(rows, resamples, seed)
    return [*notes, *([mean] if mean else [])]


def _asked(row: Row) -> int:
    return sum(len(pair.a.served) for pair in row.pairs)


def _title(rows: Sequence[Row], metric: str) -> str:
    a, b = ({pair.policy for pair in side} for side in _summaries(rows))
    data = rows[0].pairs[0].a.summary.data
    recording, profile = data["trace"]["recording"], data["latency"]["profile"]
    names = f"A {', '.join(sorted(a))}, B {', '.join(sorted(b))}"
    return f"{names}: {NAMES[metric]}, {recording} on {profile}"


def _summaries(rows: Sequence[Row]):
    pairs = [pair for row in rows for pair in row.pairs]
    return [pair.a.summary for pair in pairs], [pair.b.summary for pair in pairs]


def _blocks(rows: Sequence[Row]) -> list[list[Row]]:
    return [list(block) for _, block in groupby(rows, key=lambda row: setting_of(row.pairs))]


def _mean_line(rows: Sequence[Row], resamples: int, seed: int) -> str | None:
    if len(rows) < 2 or any(not row.ratio.value > 0 for row in rows):
        return None
    mean = geometric_mean(rows, resamples, seed)
    return f"geometric mean of A / B: {mean.value:.4f} (95 %: {_range(mean, 4)})"


def _print_table(rows: Sequence[Row], metric: str, resamples: int, seed: int) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    for block in _blocks(rows):
        console.print(_title(block, metric), markup=False)
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for index, name in enumerate(HEADER):
            table.add_column(name, justify="right" if index else "left")
        for row in block:
            table.add_row(*_cells(row))
        console.print(table)
        print("\n".join(_notes(block, resamples, seed)))


def _print_markdown(rows: Sequence[Row], metric: str, resamples: int, seed: int) -> None:
    for block in _blocks(rows):
        print(f"## {_title(block, metric)}\n")
        print(markdown_line(HEADER))
        print(markdown_line(["---", *["---:"] * (len(HEADER) - 1)]))
        for row in block:
            print(markdown_line(_cells(row)))
        print("".join(f"\n{line}\n" for line in _notes(block, resamples, seed)))


def _print_csv(rows: Sequence[Row], metric: str, resamples: int, seed: int) -> None:
    records = [_record(row, metric) for row in rows]
    writer = csv.DictWriter(sys.stdout, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)


def _record(row: Row, metric: str) -> dict:
    a, b = row.pairs[0].a.summary, row.pairs[0].b.summary
    return {
        "recording": a.data["trace"]["recording"],
        "latency_profile": a.data["latency"]["profile"],
        "max_concurrency": a.data["max_concurrency"],
        "request_rate": a.request_rate or None,
        "seeds": len(row.pairs),
        "metric": metric,
        "a": a.policy,
        "b": b.policy,
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


FORMATS = {"table": _print_table, "markdown": _print_markdown, "csv": _print_csv}
