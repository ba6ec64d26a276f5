"""Paired comparisons as text: a rich table, Markdown, CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.paired_match import setting_of
from analysis.paired_rows import Row, geometric_mean
from analysis.paired_runs import THROUGHPUT, TIMES
from analysis.settings import distinctions, leaves
from analysis.tables import PIPED_WIDTH, markdown_line, markdown_text
from traces.common.intervals import Interval, prompts_of

NAMES = {THROUGHPUT: "output tokens/s"} | {name: f"{name.upper()} mean (ms)" for name in TIMES}
HEADER = ("load", "seeds", "A", "B", "A / B", "95 %", "A - B", "95 %", "prompts", "requests",
          "A faster in")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one setting, and what sets it apart from the others that are shown."""

    rows: Sequence[Row]
    differs: str

    def title(self, metric: str) -> str:
        """Policies, metric, recording with its split, and profile."""
        data = self.rows[0].pairs[0].a.summary.data
        trace, (a, b) = data["trace"], self.rows[0].pairs[0].labels
        split = f" ({trace['split']} split)" if trace.get("split") else ""
        where = f"{trace['recording']}{split} on {data['latency']['profile']}"
        rest = f"; {self.differs}" if self.differs else ""
        return f"A {a}, B {b}: {NAMES[metric]}, {where}{rest}"

    def load(self, row: Row) -> str:
        """In words; with the number of requests where rows differ in nothing else."""
        load, requests = row.pairs[0].load
        alike = sum(other.pairs[0].load[0] == load for other in self.rows)
        return load.title if alike == 1 else f"{load.title}, {requests} requests"


def _blocks(rows: Sequence[Row]) -> list[Block]:
    found = [list(own) for _, own in groupby(rows, key=lambda row: setting_of(row.pairs))]
    apart = distinctions([leaves(own[0].pairs[0].a.summary, None) for own in found])
    return [Block(own, text) for own, text in zip(found, apart, strict=True)]


def _cells(block: Block, row: Row) -> tuple[str, ...]:
    requests = " / ".join(map(str, dict.fromkeys(row.requests)))
    return (
        block.load(row),
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


def _number(value: float, digits: int) -> str:
    return "-" if np.isnan(value) else f"{value:.{digits}f}"


def _range(one: Interval, digits: int) -> str:
    if one.low is None or one.high is None:
        return "-"
    return f"{one.low:.{digits}f} to {one.high:.{digits}f}"


def _notes(block: Block, resamples: int, seed: int) -> list[str]:
    """What stands under the rows of one setting."""
    notes = [
        f"{block.load(row)}: without {row.left_out} of {_asked(row)} requests, which A or B "
        "rejected"
        for row in block.rows
        if row.left_out
    ]
    mean = _mean_line(block.rows, resamples, seed)
    how = (
        f"intervals: 95 %, by {resamples} resamples of the prompts, the same for A and B; requests "
        "that count are those of the measured window, without warm-up"
    )
    return [*notes, *([mean] if mean else []), how]


def _asked(row: Row) -> int:
    return sum(len(pair.a.served) for pair in row.pairs)


def _mean_line(rows: Sequence[Row], resamples: int, seed: int) -> str | None:
    if len(rows) < 2 or any(not row.ratio.value > 0 for row in rows):
        return None
    mean = geometric_mean(rows, resamples, seed)
    return f"geometric mean of A / B: {mean.value:.4f} (95 %: {_range(mean, 4)})"


def _print_table(rows: Sequence[Row], metric: str, resamples: int, seed: int) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    for block in _blocks(rows):
        console.print(block.title(metric), markup=False, soft_wrap=True)
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for index, name in enumerate(HEADER):
            table.add_column(name, justify="right" if index else "left")
        for row in block.rows:
            table.add_row(*map(Text, _cells(block, row)))
        console.print(table)
        print("\n".join(_notes(block, resamples, seed)))


def _print_markdown(rows: Sequence[Row], metric: str, resamples: int, seed: int) -> None:
    for block in _blocks(rows):
        print(f"## {markdown_text(block.title(metric))}\n")
        print(markdown_line(HEADER))
        print(markdown_line(["---", *["---:"] * (len(HEADER) - 1)]))
        for row in block.rows:
            print(markdown_line(_cells(block, row)))
        print("".join(f"\n{line}\n" for line in _notes(block, resamples, seed)))


def _print_csv(rows: Sequence[Row], metric: str, resamples: int, seed: int) -> None:
    records = [_record(block, row, metric) for block in _blocks(rows) for row in block.rows]
    writer = csv.DictWriter(sys.stdout, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)


def _record(block: Block, row: Row, metric: str) -> dict:
    data, (load, requests) = row.pairs[0].a.summary.data, row.pairs[0].load
    a, b = row.pairs[0].labels
    return {
        "recording": data["trace"]["recording"],
        "content_hash": data["trace"]["content_hash"],
        "split": data["trace"].get("split"),
        "latency_profile": data["latency"]["profile"],
        "latency_content_hash": data["latency"].get("content_hash"),
        "setting": block.differs,
        "max_concurrency": load.max_concurrency,
        "request_rate": load.request_rate or None,
        "burstiness": None if load.of_file else load.burstiness,
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


FORMATS = {"table": _print_table, "markdown": _print_markdown, "csv": _print_csv}
