"""The columns of a comparison: which keys, how they are shown, and which end is better."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from analysis.summaries import Summary
from traces.common.errors import InputError

_LATENCY = re.compile(r"(mean|median|std|p[\d.]+)_(ttft|tpot|itl|e2el)_ms")
SPEEDUP = "speedup"
PLAIN = "autoregressive"  # over it, a ratio of throughputs is called a speedup


@dataclass(frozen=True, slots=True)
class Metric:
    """One column; ``scale`` multiplies what is shown in tables, never what goes into CSV.

    Titles may hold line breaks, used where columns are narrow.
    """

    key: str
    title: str
    digits: int = 3
    better: Literal["high", "low"] | None = None
    scale: float = 1.0

    def show(self, value: float) -> str:
        return f"{value * self.scale:.{self.digits}f}"


DEFAULTS = (
    Metric("output_throughput", "output\ntokens/s", 1, "high"),
    Metric(SPEEDUP, "speedup", 3, "high"),
    Metric("median_tpot_ms", "TPOT p50\n(ms)", 2, "low"),
    Metric("p99_tpot_ms", "TPOT p99\n(ms)", 2, "low"),
    Metric("acceptance_length", "accept.\nlength", 3, "high"),
    Metric("draft_nodes_per_request", "nodes per\nrequest", 1),
    Metric("share_verified_accepted", "verified\naccepted\n(%)", 1, "high", 100.0),
)


def choose_metrics(
    names: Sequence[str] | None, summaries: Iterable[Summary], baseline: str | None = None
) -> list[Metric]:
    """The named metrics, or the default ones.

    Args:
        baseline: what ``speedup`` is over, for its title; None or plain decoding: "speedup".

    Raises:
        InputError: a name that is no number in any summary; the message lists those that are.
    """
    known = {metric.key: metric for metric in DEFAULTS}
    if baseline not in (None, PLAIN):
        known[SPEEDUP] = replace(known[SPEEDUP], title=f"ratio to\n{baseline}")
    if not names:
        return list(known.values())
    keys = {key for run in summaries for key in run.data if run.number(key) is not None}
    for name in names:
        if name not in known and name not in keys:
            accepted = ", ".join(sorted(keys | {SPEEDUP}))
            raise InputError(f"--metric {name} is in no summary; accepted: {accepted}")
    return [known.get(name) or _plain(name) for name in dict.fromkeys(names)]


def _plain(key: str) -> Metric:
    """A metric known only by its key: vLLM's names end in what they measure."""
    words = key.removesuffix("_ms").replace("_", " ")
    latency = _LATENCY.fullmatch(key)
    if latency:
        words = f"{latency[2].upper()} {latency[1].replace('median', 'p50')}"
    if key.endswith("_ms"):
        return Metric(key, f"{words} (ms)", 2, "low")
    return Metric(key, words, 3, "high" if key.endswith(("throughput", "goodput")) else None)
