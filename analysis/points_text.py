"""Predicted against measured as text: a table, Markdown, CSV."""

from __future__ import annotations

import csv
import sys

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.cells import BLANK
from analysis.intervals import Estimate
from analysis.notes import setting_title
from analysis.points_match import Beside, Pair
from analysis.tables import PIPED_WIDTH, markdown_line, markdown_text

HEADINGS = ("point", "load", "runs", "policy", "metric", "measured", "predicted", "error")
_NUMBERS = 3  # of the columns, at the end
NOTHING = "no measured point has the load and policy of a run, or a metric of the same meaning"


def print_table(result: Beside) -> None:
    """A rich table, then what to know about it."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, title in enumerate(HEADINGS):
        right = index >= len(HEADINGS) - _NUMBERS
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    for pair in result.pairs:
        table.add_row(*map(Text, _cells(pair)))
    console.print(table if result.pairs else Text(NOTHING))
    for note in _notes(result):
        console.print(Text(f"  {note}", style="italic"), soft_wrap=True)


def print_markdown(result: Beside) -> None:
    """The same, as Markdown."""
    if result.pairs:
        print(markdown_line(HEADINGS))
        print(markdown_line(["---"] * (len(HEADINGS) - _NUMBERS) + ["---:"] * _NUMBERS))
    else:
        print(NOTHING)
    for pair in result.pairs:
        print(markdown_line(_cells(pair)))
    print()
    for note in _notes(result):
        print(f"- {markdown_text(note)}")


def print_csv(result: Beside) -> None:
    """One row per pair, in the units of the summaries; the notes go to stderr."""
    names = (
        *("point", "file", "recording", "latency_profile", "latency_content_hash", "setting"),
        *("policy", "max_concurrency", "request_rate", "burstiness", "metric", "measured"),
        *("predicted", "predicted_ci95", "seeds", "relative_error", "note"),
    )
    writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    writer.writeheader()
    for pair in result.pairs:
        writer.writerow(_record(pair))
    for note in result.notes:
        print(f"note: {note}", file=sys.stderr)


def _notes(result: Beside) -> list[str]:
    marked = any(pair.meaning.note for pair in result.pairs)
    return [*(["* counted otherwise, see below"] if marked else []), *result.notes]


def _record(pair: Pair) -> dict:
    predicted = pair.predicted
    return {
        "point": pair.point.label,
        "file": pair.point.file,
        "recording": pair.comparison.trace["recording"],
        "latency_profile": pair.comparison.latency["profile"],
        "latency_content_hash": pair.comparison.latency.get("content_hash"),
        "setting": pair.comparison.differs,
        "policy": pair.row.label,
        "max_concurrency": pair.load.max_concurrency,
        "request_rate": pair.load.request_rate or None,
        "burstiness": None if pair.load.of_file else pair.load.burstiness,
        "metric": pair.metric,
        "measured": pair.measured,
        "predicted": None if predicted is None else predicted.mean,
        "predicted_ci95": None if predicted is None else predicted.half_width,
        "seeds": " ".join(map(str, pair.row.seeds)),
        "relative_error": pair.error,
        "note": pair.meaning.note,
    }


def _cells(pair: Pair) -> list[str]:
    error = BLANK if pair.error is None else f"{pair.error:+.1%}"
    return [
        pair.point.label,
        pair.load.title,
        setting_title(pair.comparison),
        pair.row.label,
        pair.metric,
        f"{pair.measured:.5g}",
        _predicted(pair.predicted),
        f"{error} *" if pair.meaning.note else error,
    ]


def _predicted(value: Estimate | None) -> str:
    if value is None:
        return BLANK
    spread = "" if value.half_width is None else f" ±{_plain(value.half_width, value.mean, 2)}"
    return f"{_plain(value.mean, value.mean, 5)}{spread}"


def _plain(number: float, scale: float, digits: int) -> str:
    """Without an exponent where it has fewer than seven figures; what rounding left is 0."""
    if abs(number) <= 1e-9 * max(1.0, abs(scale)):
        return "0"
    rounded = float(f"{number:.{digits}g}")
    return f"{rounded:g}" if 1e-4 <= abs(rounded) < 1e6 else f"{rounded:.{digits - 1}e}"


FORMATS = {"table": print_table, "markdown": print_markdown, "csv": print_csv}
