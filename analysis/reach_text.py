"""The reach of policies as text: a rich table, Markdown, and CSV for other programs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.bounds import Bounds
from analysis.cells import BLANK
from analysis.compare import Row
from analysis.intervals import Estimate
from analysis.reach import Reach
from analysis.tables import PIPED_WIDTH, markdown_line, markdown_text

HEADINGS = ("concurrency", "policy", "seeds", "tokens/s", "plain", "bound in the order", "reach")
HEADINGS += ("bound of free nodes", "reach of it")
_TEXTS = ("setting", "policy")


def _headings(found: Sequence[Reach]) -> list[str]:
    """With the setting where there are several."""
    return [*(["setting"] if _several(found) else []), *HEADINGS]


def _several(found: Sequence[Reach]) -> bool:
    return any(one.setting for one in found)


def _cells(reach: Reach, several: bool) -> list[str]:
    rate = reach.row.estimate("output_throughput")
    return [
        *([reach.setting] if several else []),
        str(reach.concurrency),
        reach.row.label,
        str(len(reach.row.runs)),
        _shown(rate, "{:.1f}"),
        f"{reach.plain:.1f}",
        f"{reach.in_order:.1f}",
        _shown(reach.of(reach.in_order), "{:.1%}"),
        f"{reach.free:.1f}",
        _shown(reach.of(reach.free), "{:.1%}"),
    ]


def _shown(one: Estimate | None, form: str) -> str:
    if one is None:
        return BLANK
    half = "" if one.half_width is None else f" ±{form.format(one.half_width)}"
    return form.format(round(one.mean, 4) + 0.0) + half  # not -0.0


def _notes(found: Sequence[Reach], bounds: Bounds) -> Iterable[str]:
    trace, latency, order = (bounds.data.get(key, {}) for key in ("trace", "latency", "order"))
    yield f"{trace['recording']} on {latency['profile']}; bounds: {bounds.path}"
    named = ", ".join(f"{key} {value}" for key, value in order.items())
    yield f"order of the bounds: {named}; reach = (policy - plain) / (bound - plain) in tokens/s"
    yield "bounds: O2 and O3 for a lone request, O5 (affine floor of the step's cost) for a batch"
    yield "a run weighs texts by its window, the bounds each once: many prompts make them agree"
    short = sorted({one.row.label for one in found if _is_short(one.row)})
    if short:
        yield f"too few requests for a full batch, so lower than it should be: {', '.join(short)}"
    if bounds.data.get("what_if"):
        yield f"what-if: {bounds.data.get('what_if_reason')}"


def _is_short(row: Row) -> bool:
    return any((run.data.get("window") or {}).get("kind") == "whole run" for run in row.runs)


def print_table(found: Sequence[Reach], bounds: Bounds) -> None:
    """A rich table, then what it rests on."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in _headings(found):
        table.add_column(heading, justify="left" if heading in _TEXTS else "right")
    for one in found:
        table.add_row(*map(Text, _cells(one, _several(found))))
    console.print(table)
    print("\n".join(_notes(found, bounds)))


def print_markdown(found: Sequence[Reach], bounds: Bounds) -> None:
    """The same, as Markdown."""
    headings = _headings(found)
    print(markdown_line(headings))
    print(markdown_line(["---" if one in _TEXTS else "---:" for one in headings]))
    for one in found:
        print(markdown_line(_cells(one, _several(found))))
    print("\n" + "\n".join(f"- {markdown_text(note)}" for note in _notes(found, bounds)))


def print_csv(found: Sequence[Reach], bounds: Bounds) -> None:
    """One row per policy and concurrency, in tokens/s and shares."""
    rows = [_record(one, bounds) for one in found]
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _record(one: Reach, bounds: Bounds) -> dict[str, Any]:
    trace, latency = bounds.data["trace"], bounds.data["latency"]
    record = {
        "recording": trace["recording"],
        "content_hash": trace["content_hash"],
        "latency_profile": latency["profile"],
        "latency_content_hash": latency.get("content_hash"),
        "setting": one.setting,
        "max_concurrency": one.concurrency,
        "policy": one.row.label,
        "seeds": " ".join(map(str, one.row.seeds)),
        "output_throughput": one.row.estimate("output_throughput").mean,
        "plain": one.plain,
    }
    for name, bound in (("in_order", one.in_order), ("free", one.free)):
        share = one.of(bound)
        record[f"bound_{name}"] = bound
        record[f"reach_{name}"] = None if share is None else share.mean
        record[f"reach_{name}_ci95"] = None if share is None else share.half_width
    return record


FORMATS: dict[str, Callable] = {"table": print_table, "markdown": print_markdown, "csv": print_csv}
