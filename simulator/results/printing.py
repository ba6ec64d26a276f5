"""What a run prints: a table for one, a line for each job of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from simulator.results.window import WHOLE_RUN

_PARTS = ("draft", "verify", "host", "prefill")  # of a step


def print_run(
    summary: Mapping[str, Any], folder: Path, sweep: str | None, out: TextIO | None = None
) -> None:
    """The main numbers of a run: one line inside a sweep, a table and a line alone.

    out: where to; None: stdout.
    """
    if sweep is not None:
        print(f"{sweep}: {headline(summary)}", file=out, flush=True)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in _numbers(summary):
        table.add_row(name, value)
    Console(file=out, highlight=False).print(table)
    print(f"{summary['policy']}: {headline(summary)}", file=out)
    print(f"results in {short_path(folder)}", file=out, flush=True)


def print_skipped(folder: Path, out: TextIO | None = None) -> None:
    print(f"skipped: {short_path(folder)} holds this run already", file=out, flush=True)


def headline(summary: Mapping[str, Any]) -> str:
    """Throughput, latency and acceptance in one line; what-if where no such engine exists."""
    parts = [
        f"{_number(summary['output_throughput'], 1)} tokens/s",
        f"mean TPOT {_number(summary['mean_tpot_ms'], 2)} ms",
        f"acceptance length {_number(summary['acceptance_length'], 2)}",
        f"{_number(summary['draft_nodes_per_request'], 1)} nodes per request",
    ]
    if summary.get("rejected"):
        parts.append(f"{summary['rejected']} rejected")
    if summary["request_goodput"] is not None:
        parts.append(f"goodput {_number(summary['request_goodput'], 2)} requests/s")
    modelled = summary["cost_shares"]["time"]["modelled"]
    if modelled:
        parts.append(f"{modelled:.0%} modelled")
    return ", ".join(parts) + (" (what-if)" if summary["what_if"] else "")


def _numbers(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    window, rate, events = summary["window"], summary["request_rate"], []
    load = f"{summary['max_concurrency']} at most"
    if rate == "inf":
        load += ", closed loop"
    else:
        asked, came = _number(rate, 3), _number(summary["realised_request_rate"], 3)
        load += f", {asked} requests/s asked, {came} came"
    rows = [
        ("policy", summary["policy"]),
        ("recording", f"{summary['trace']['pair']}, T = {summary['trace']['temperature']:g}"),
        ("latency", f"{summary['latency']['profile']} ({summary['latency']['model']})"),
        ("load", f"{load}, {summary['completed']} requests, seed {summary['seed']}"),
        ("window", _window(window, rate, summary.get("ramp", 0))),
        ("request throughput", f"{_number(summary['request_throughput'], 2)} requests/s"),
        ("output throughput", f"{_number(summary['output_throughput'], 1)} tokens/s"),
    ]
    for name in ("ttft", "tpot", "itl", "e2el"):
        numbers = [_number(summary[f"{key}_{name}_ms"], 2) for key in ("mean", "median", "p99")]
        note = f" ({summary['ttft_note']})" if name == "ttft" else ""
        rows.append((f"{name.upper()} mean, median, p99", " / ".join(numbers) + " ms" + note))
    if not summary["completed"]:
        rows.append(("latencies", "none: no request was served"))
    elif summary["mean_e2el_ms"] is None:
        rows.append(("latencies", "none: every request is a client's first; raise num_prompts"))
    if summary.get("rejected"):
        refused = f"{summary['rejected']} of {summary['num_prompts']} requests"
        events.append(("rejected", f"{refused}: they can never fit"))
    if summary.get("preemptions"):
        events.append(("preemptions", f"{summary['preemptions']}, their prompts read again"))
    if summary.get("hand_overs"):
        share = f"{summary['hand_over_share']:.0%} of requests went on in another text"
        events.append(("hand-overs", f"{summary['hand_overs']}; {share}"))
    step, shares = summary["step_ms"], summary["cost_shares"]["time"]
    shown = [key for key in _PARTS if key != "prefill" or step.get(key)]
    parts = " + ".join(f"{_number(step[key], 2)} {key}" for key in shown)
    rows += [
        ("step", f"{_number(step['total'], 2)} ms = {parts}"),
        ("acceptance length", _number(summary["acceptance_length"], 3)),
        ("nodes per request", _number(summary["draft_nodes_per_request"], 1)),
        *events,
        ("cost from", ", ".join(f"{share:.0%} {name}" for name, share in shares.items() if share)),
    ]
    if summary["what_if"]:
        rows.append(("what-if", summary["what_if_reason"]))
    rows += [("note", note) for note in summary.get("policy_notes", ())]
    return rows


def _window(window: Mapping[str, Any], rate: float | str, ramp: int) -> str:
    text = f"{window['kind']}, {window['end_s'] - window['start_s']:.3f} s"
    if window["kind"] != WHOLE_RUN:
        return text
    if rate == "inf":
        return text + " (too few requests for a full batch)"
    return text + (f" (too few requests to leave out a ramp of {ramp})" if ramp else "")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def short_path(folder: Path) -> str:
    """Relative to the working folder where it lies below it."""
    folder, here = folder.resolve(), Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)
