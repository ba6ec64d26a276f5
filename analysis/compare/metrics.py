"""The columns of a comparison, and means with 95 % intervals over a handful of seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pandas

from analysis.read.runs import numbers
from traces.common.errors import InputError

LEVEL = 0.95
SPEEDUP = "speedup"
PLAIN = "autoregressive"  # over it, a ratio of throughputs is called a speedup
_LATENCY = re.compile(r"(mean|median|std|p[\d.]+)_(ttft|tpot|itl|e2el)_ms")


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

    def best(self, means: pandas.Series) -> float | None:
        """Of the means of a load; None where no end is better, or all are equal."""
        if self.better is None or means.nunique() < 2:
            return None
        return means.max() if self.better == "high" else means.min()


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
    texts: Sequence[str] | None, runs: pandas.DataFrame, baseline: str | None = None
) -> list[Metric]:
    """The metrics of ``--metric KEY[,KEY...]`` given any number of times, or the default ones.

    Args:
        baseline: what ``speedup`` is over, for its title; None or plain decoding: "speedup".

    Raises:
        InputError: a name that is no number in any summary; the message lists those that are.
    """
    known = {metric.key: metric for metric in DEFAULTS}
    if baseline not in (None, PLAIN):
        known[SPEEDUP] = replace(known[SPEEDUP], title=f"ratio to\n{baseline}")
    names = [name for text in texts or () for name in text.split(",") if name]
    if not names:
        return list(known.values())
    top = {key for data in runs.get("data", ()) for key in data}
    keys = {key for key in top if numbers(runs, key).notna().any()}
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


def estimates(values: pandas.Series, by: pandas.Series) -> pandas.DataFrame:
    """Means of groups of independent values with their Student t intervals.

    Args:
        values: numbers, NaN of those that are left out. by: the group of each.

    Returns:
        By group: ``mean``, ``half`` (half the width of the 95 % interval, NaN of one value or
        none), ``n``, ``low``, ``high`` (the mean itself where there is no interval).
    """
    from scipy.special import stdtrit

    grouped = values.astype(float).groupby(by, sort=False)
    found = grouped.agg(mean="mean", n="count")
    half = stdtrit(found["n"] - 1, (1 + LEVEL) / 2) * grouped.sem()
    found["half"] = half.where(found["n"] > 1)
    spread = found["half"].fillna(0.0)
    return found.assign(low=found["mean"] - spread, high=found["mean"] + spread)


def estimate(values: Sequence[float]) -> pandas.Series:
    """The same of one group of at least one value."""
    return estimates(pandas.Series(values), pandas.Series(0, range(len(values)))).loc[0]
