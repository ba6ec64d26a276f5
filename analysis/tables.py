"""Comparisons as text: rich tables, Markdown, and CSV for other programs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.cells import Cell, best_mean, block_cells, block_notes, headings
from analysis.compare import Block, Comparison, Row
from analysis.metrics import Metric
from analysis.notes import notes, setting_title
from analysis.summaries import SOURCES

_GAPS = 2  # at the sides of a table
PIPED_WIDTH = 160  # columns when the output is no terminal: tables are not cut


def print_tables(comparisons: Sequence[Comparison], metrics: Sequence[Metric]) -> None:
    """One rich table per setting and load, then what the setting rests on."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    for comparison in comparisons:
        console.print(Text(setting_title(comparison), style="bold underline"))
        for block in comparison.blocks:
            shown = _fitting(block, metrics, console)
            console.print(Text(f"\n{block.load.title}"), _rich_table(block, shown, console))
            if shown != metrics:
                lost = ", ".join(" ".join(one.title.split()) for one in metrics[len(shown) :])
                text = f"  not shown in {console.width} columns: {lost} (--format markdown)"
                console.print(Text(text, style="italic"), soft_wrap=True)
            for note in block_notes(block, metrics):
                console.print(Text(f"  {note}", style="italic"))
        for heading, text in notes(comparison):
            console.print(Text.assemble((f"{heading:>10}  ", "dim"), text), soft_wrap=True)
        mark = "bold" if console.is_terminal else "*"
        console.print(Text(f"{mark:>10}  best mean of its column\n", style="dim"))


def _rich_table(block: Block, metrics: Sequence[Metric], console: Console) -> Table:
    """Closer columns in a narrow terminal; a star for the best where bold cannot be seen."""
    tight = console.width < PIPED_WIDTH
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 0 if tight else 1))
    for index, title in enumerate(headings(metrics)):
        inner = 0 < index <= len(metrics) + 1
        table.add_column(
            title, justify="right" if inner else "left", no_wrap=index == 0, overflow="fold"
        )
    for row in block_cells(block, metrics):
        table.add_row(*(_rich_cell(cell, not console.is_terminal) for cell in row))
    return table


def _fitting(block: Block, metrics: Sequence[Metric], console: Console) -> Sequence[Metric]:
    """The first metrics whose columns fit without a word broken; one at least."""
    for count in range(len(metrics), 1, -1):
        titles = headings(metrics[:count])
        rows = [[cell.text for cell in row] for row in block_cells(block, metrics[:count])]
        widths = [
            max(len(word) for text in column for word in (text.split() or [""]))
            for column in zip(titles, *rows, strict=True)
        ]
        widths[0] = max(len(row[0]) for row in rows)  # labels are never wrapped
        if sum(widths) + _GAPS + 2 * len(widths) <= console.width:
            return metrics[:count]
    return metrics[:1]


def _rich_cell(cell: Cell, plain: bool) -> Text:
    mark = ("*" if cell.best else " ") if plain else ""
    return Text(cell.text + mark, style="bold" if cell.best else "")


def print_markdown(comparisons: Sequence[Comparison], metrics: Sequence[Metric]) -> None:
    """The same, as Markdown."""
    for comparison in comparisons:
        print(f"## {markdown_text(setting_title(comparison))}\n")
        for block in comparison.blocks:
            print(f"### {block.load.title}\n")
            print(markdown_line(headings(metrics)))
            print(markdown_line(["---", *["---:"] * (len(metrics) + 1), "---"]))
            for row in block_cells(block, metrics):
                print(markdown_line([_bold(cell) for cell in row]))
            said = map(markdown_text, block_notes(block, metrics))
            print("".join(f"\n{note}\n" for note in said))
        for heading, text in notes(comparison):
            print(f"- {heading}: {markdown_text(text)}")
        print()


def markdown_line(cells: Sequence[str]) -> str:
    """A row of a table; a text with a bar in it stays in its cell."""
    return "| " + " | ".join(markdown_text(cell).replace("|", "\\|") for cell in cells) + " |"


def markdown_text(text: str) -> str:
    """A text on one line that is no markup of HTML."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")


def _bold(cell: Cell) -> str:
    return f"**{cell.text}**" if cell.best else cell.text


def print_csv(comparisons: Sequence[Comparison], metrics: Sequence[Metric]) -> None:
    """One row per setting, load and policy; per metric its mean, interval half-width and n."""
    write_csv(sys.stdout, comparisons, metrics)


def write_csv(out: TextIO, comparisons: Sequence[Comparison], metrics: Sequence[Metric]) -> None:
    """CSV in the units of the summaries; an empty field is a value that does not exist."""
    rows = [
        _record(comparison, block, row, metrics)
        for comparison in comparisons
        for block in comparison.blocks
        for row in block.rows
    ]
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _record(comparison: Comparison, block: Block, row: Row, metrics: Sequence[Metric]) -> dict:
    """``best``: the metrics whose best mean at this load the row has."""
    load, best = block.load, []
    record = {
        "recording": comparison.trace["recording"],
        "content_hash": comparison.trace["content_hash"],
        "temperature": comparison.trace.get("temperature"),
        "latency_profile": comparison.latency["profile"],
        "latency_content_hash": comparison.latency.get("content_hash"),
        "setting": comparison.differs,
        "what_if": str(row.runs[0].data["what_if"]).lower(),
        "max_concurrency": load.max_concurrency,
        "request_rate": load.request_rate or None,
        "burstiness": None if load.of_file else load.burstiness,
        "ramp": load.ramp,
        "policy": row.label,
        "seeds": " ".join(map(str, row.seeds)),
        "requests_sent": row.requests,
        "requests_rejected": row.rejected,
    }
    for metric in metrics:
        one = row.estimate(metric.key)
        record[metric.key] = None if one is None else one.mean
        record[f"{metric.key}_ci95"] = None if one is None else one.half_width
        record[f"{metric.key}_n"] = 0 if one is None else one.n
        if one is not None and one.mean == best_mean(block, metric):
            best.append(metric.key)
    record["best"] = " ".join(best)
    return record | {f"step_time_{name}": row.cost_shares[name] for name in SOURCES}
