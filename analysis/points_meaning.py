"""Which metrics of a measurement mean something else in a run's summary."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.settings import objective_words
from analysis.summaries import Summary
from traces.importers.points import Point

THROUGHPUTS = (
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "request_goodput",
)
FULL_BATCH = "full batch"  # window of a closed loop, see the summaries
WITH_PREFILL = "queue and prefill"
GOODPUT = "request_goodput"


@dataclass(frozen=True, slots=True)
class Meaning:
    """Where a run has the metric, and how it differs there; `comparable` admits an error.

    What is not `shown` is another quantity altogether.
    """

    key: str
    comparable: bool = True
    note: str = ""
    shown: bool = True


# By the name that the source uses. vLLM's benchmark and the summaries share theirs.
OTHER_COUNTS = {
    "accept_length": Meaning(
        "acceptance_length",
        False,
        "SGLang's scheduler counts the bonus token and the root, over the server's life; a run's "
        "acceptance_length is 1 + accepted / drafts over its window",
    ),
    "acceptance_length_by_prompt": Meaning(
        "acceptance_length", False, "a mean over prompts; a run's is pooled over rounds"
    ),
    "acceptance_length_over_positions": Meaning(
        "acceptance_length",
        False,
        "a mean over all output positions; a run's is over the positions where its rounds start",
    ),
}


def meaning_of(metric: str, run: Summary, point: Point) -> Meaning:
    """How `metric` of a point relates to the summary of `run`."""
    if metric == GOODPUT and (why := _other_objectives(run, point)):
        return Meaning(metric, False, why, shown=False)
    if metric in OTHER_COUNTS:
        return OTHER_COUNTS[metric]
    if metric in THROUGHPUTS and _window(run) == FULL_BATCH:
        return Meaning(
            metric,
            note="a run counts the time in which its batch is full, a serving benchmark its whole "
            "duration, with ramp and drain",
        )
    if metric.endswith(("_ttft_ms", "_e2el_ms")) and run.data["ttft_note"] not in (
        None,
        WITH_PREFILL,
    ):
        return Meaning(
            metric,
            False,
            f"a run's TTFT is {run.data['ttft_note']}: its latency profile has no prefill",
        )
    return Meaning(metric)


def _other_objectives(run: Summary, point: Point) -> str:
    """Why goodputs are of different questions; empty where their objectives are the same."""
    asked, ours = point.objectives, run.data.get("goodput")
    if asked is None:
        return "left out: the objectives of the measurement are not known"
    if not ours:
        return "left out: the runs have no objectives"
    if asked != {name: value for name, value in ours.items() if value is not None}:
        said = f"{objective_words(asked)}, of the runs {objective_words(ours)}"
        return f"left out: the objectives of the measurement are {said}"
    return ""


def _window(run: Summary) -> str | None:
    window = run.data.get("window")
    return window.get("kind") if isinstance(window, dict) else None
