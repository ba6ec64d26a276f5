"""What a reader should know before trusting the numbers of some runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from analysis.cells import percent
from analysis.compare import Block, Comparison, Row
from analysis.notes import source_notes
from analysis.summaries import Summary
from analysis.sweeps import PARTLY

FEWEST_FOR_P99 = 100  # requests; of fewer, the 99th percentile is one of the worst or between two
RATE_OFF = 0.1
_NAMED = 4  # examples that are spelled out


def warnings(comparison: Comparison) -> list[str]:
    """One sentence each, the weightiest first."""
    checks = (_what_if, _origin, _mixed, _windows, _seeds, _baseline, _few, _rates, _served)
    return [text for check in (*checks, _sketch, _free) for text in check(comparison)]


def _mixed(comparison: Comparison) -> Iterator[str]:
    for _, text in source_notes(comparison):
        yield f"Lines over loads join runs {text}."


def _rows(comparison: Comparison) -> Iterator[tuple[Block, Row]]:
    return ((block, row) for block in comparison.blocks for row in block.rows)


def _where(comparison: Comparison, of: Callable[[Summary], bool]) -> str:
    """The rows with such a run, in words; empty where there is none."""
    rows = list(_rows(comparison))
    found = [(block, row) for block, row in rows if any(map(of, row.runs))]
    if not found:
        return ""
    if len(found) == len(rows):
        return "every policy at every load" if len(rows) > 1 else "this run"
    every = [block.load for block in comparison.blocks if _all(block, found)]
    texts = [f"every policy at {load.title}" for load in every]
    texts += [
        f"{row.label} at {block.load.title}" for block, row in found if block.load not in every
    ]
    return _listed(texts)


def _all(block: Block, found: Sequence[tuple[Block, Row]]) -> bool:
    """Whether all of several rows of a load are among those found."""
    return 1 < len(block.rows) == sum(one is block for one, _ in found)


def _what_if(comparison: Comparison) -> Iterator[str]:
    run = comparison.runs[0]
    if run.data["what_if"]:
        reason = run.data.get("what_if_reason") or "recording and latency differ in model"
        yield f"A what-if, which predicts no engine that exists: {reason}."


def _origin(comparison: Comparison) -> Iterator[str]:
    texts = {
        "modelled": "computed by a model beyond what the profile's tables hold",
        "clamped": "read at the nearest context that the profile was timed at",
    }
    for name, text in texts.items():
        found = [(row.cost_shares[name], block, row) for block, row in _rows(comparison)]
        share, block, row = max(found, key=lambda one: one[0])
        if share > PARTLY:
            yield (
                f"Up to {percent(share)} of the step time is {name} ({text}); most in {row.label} "
                f"at {block.load.title}."
            )


def _windows(comparison: Comparison) -> Iterator[str]:
    where = _where(
        comparison,
        lambda run: run.closed_loop and (run.data.get("window") or {}).get("kind") == "whole run",
    )
    if where:
        yield (
            "Too few requests for a full batch, so throughput is lower than it should be (it "
            f"counts the beginning and the end): {where}."
        )


def _seeds(comparison: Comparison) -> Iterator[str]:
    rows = list(_rows(comparison))
    single = sum(len(row.runs) == 1 for _, row in rows)
    if single == len(rows):
        yield "One seed: no interval says how far another order of requests would differ."
    elif single:
        yield f"{single} of {len(rows)} rows have one seed, and so no interval."
    elif min(len(row.runs) for _, row in rows) == 2:
        yield "Two seeds: their 95 % intervals are wide (Student's t of one degree of freedom)."


def _baseline(comparison: Comparison) -> Iterator[str]:
    """One sentence for all loads without a baseline, one for all rows of some seeds without it."""
    base, blocks = comparison.baseline, comparison.blocks
    alone = [block.load.title for block in blocks if all(row.label != base for row in block.rows)]
    if alone:
        where = "any load" if len(alone) == len(blocks) > 1 else _listed(alone)
        yield f"No {base} run of this setting at {where}: no ratio to it there."
    partly = [
        f"{row.label} at {block.load.title} ({len(row.paired)} of {len(row.runs)} seeds)"
        for block, row in _rows(comparison)
        if block.load.title not in alone and len(row.paired) < len(row.runs)
    ]
    if partly:
        yield (
            f"Ratios rest on those seeds, with as many prompts, that {base} ran too: "
            f"{_listed(partly)}."
        )


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return "; ".join(texts[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _few(comparison: Comparison) -> Iterator[str]:
    def few(run: Summary) -> bool:
        requests = (run.data.get("window") or {}).get("requests")
        return requests is not None and requests < FEWEST_FOR_P99

    where = _where(comparison, few)
    if where:
        yield f"99th percentiles are of fewer than {FEWEST_FOR_P99} requests a run: {where}."


def _rates(comparison: Comparison) -> Iterator[str]:
    def off(run: Summary) -> bool:
        rate = run.number("realised_request_rate")
        return bool(rate and run.request_rate) and abs(rate / run.request_rate - 1) > RATE_OFF

    where = _where(comparison, off)
    if where:
        yield f"The drawn arrivals miss the asked rate by more than {RATE_OFF:.0%}: {where}."


def _served(comparison: Comparison) -> Iterator[str]:
    texts = {
        "rejected": "Requests were rejected, since they can never fit in memory",
        "preemptions": "Requests were pushed out of memory and read again",
    }
    for key, text in texts.items():
        where = _where(comparison, lambda run, key=key: (run.number(key) or 0) > 0)
        if where:
            yield f"{text}: {where}."


def _sketch(comparison: Comparison) -> Iterator[str]:
    where = _where(comparison, lambda run: run.data.get("percentiles") == "sketch")
    if where:
        errors = [run.number("percentile_error") or 0.0 for run in comparison.runs]
        yield f"Percentiles are by a sketch, within {max(errors):.2g} of the value: {where}."


def _free(comparison: Comparison) -> Iterator[str]:
    run = comparison.runs[0]
    if run.data.get("ttft_note") == "queue only":
        yield "Prefill costs nothing in this profile: TTFT is the wait in the queue alone."
    host = comparison.latency.get("host")
    if isinstance(host, dict) and not any(value for value in host.values()):
        yield "No host work is charged beside the profile's step times (every latency.host is 0)."
    if run.data.get("live") and comparison.trace.get("recorded_target_is_this") is False:
        yield "Policies were fitted on a recording of another target than the live one."
