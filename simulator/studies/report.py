"""What the studies write and print alike: files, facts of a job, numbers and intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.results.files import write_files
from simulator.results.summary import latency_facts, plain, trace_facts, what_if_reason
from traces.common.intervals import Interval
from traces.common.table import BLANK, Table, render

if TYPE_CHECKING:
    from simulator.engine.run import Job

MUCH = 0.1  # of step time beyond what was measured, from where on it is said
SIGNS = "+ and -: the 95 % interval over prompts is above or below 1"
BEYOND = "; m: steps of either lie beyond the measured table"


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """All files by name, or none of them."""

    def writer(text: str):
        return lambda path: path.write_text(text, encoding="utf-8", newline="")

    write_files(folder, {name: writer(text) for name, text in texts.items()})


def json_text(data: Mapping[str, Any]) -> str:
    """The text of a JSON file."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def csv_text(records: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """The text of a CSV file."""
    return render([Table((), (), records, columns)], "csv")


def job_facts(job: Job) -> dict[str, Any]:
    """Texts, price of a step and server, for a JSON file."""
    reason = what_if_reason(job)
    return {
        "trace": trace_facts(job),
        "latency": latency_facts(job),
        "server": job.settings.server.model_dump(),
        "workload": job.settings.workload.model_dump(),
        "what_if": reason is not None,
        "what_if_reason": reason,
    }


def policy_settings(node: Mapping[str, Any]) -> dict[str, Any]:
    """A policy's settings, for a JSON file."""
    return {key: plain(value) for key, value in node.items() if key != "name" and key[0] != "_"}


def ends(name: str, found: Interval | None) -> dict[str, float | None]:
    """A 95 % interval as columns ``NAME_low`` and ``NAME_high``."""
    low, high = (None, None) if found is None else (found.low, found.high)
    return {f"{name}_low": finite(low), f"{name}_high": finite(high)}


def with_ends(name: str, found: Interval | None) -> dict[str, float | None]:
    """A value as column ``NAME``, and its interval."""
    return {name: None if found is None else found.value, **ends(name, found)}


def finite(value: float | None) -> float | None:
    """None for what JSON cannot hold."""
    return None if value is None or not abs(value) < float("inf") else value


def span(found: Interval, form: Any = "{:.3f}".format) -> str:
    """A 95 % interval as text."""
    if found.low is None or found.high is None:
        return BLANK
    return f"{form(found.low)} to {form(found.high)}"


def sign(ratio: Interval) -> str:
    """Which side of 1 the interval is on, see `SIGNS`."""
    if ratio.low is None or not (ratio.low > 1 or ratio.high < 1):
        return " "
    return "+" if ratio.low > 1 else "-"


def number(value: float) -> str:
    """Four significant digits, or all of a large number."""
    return f"{value:.1f}" if value >= 1000 else f"{value:.4g}"


def digits(value: float | None, count: int) -> str:
    """So many digits behind the point."""
    return BLANK if value is None else f"{value:.{count}f}"
