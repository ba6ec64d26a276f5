"""Runs grouped into settings, loads and policies; speedups paired by seed.

A setting is what must be equal before two numbers may stand in one table: the recording by its
content, the split and domains, the latency profile with all its settings, and the server's. Other
settings get blocks of their own, and a speedup never crosses them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from analysis.intervals import Estimate, estimate
from analysis.look import in_order
from analysis.metrics import PLAIN, SPEEDUP
from analysis.summaries import SOURCES, Summary
from analysis.variants import label_policies
from traces.errors import InputError

BASELINE = PLAIN
_FOLLOWS_LOAD = "unique_prompts"  # of `trace`: how much of the recording a run of this size uses


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """A closed loop (``request_rate`` inf) or arrivals with a cap on requests in flight.

    A rate of 0 is none: of a file whose requests all come at one time.
    """

    request_rate: float
    max_concurrency: int
    burstiness: float

    @property
    def closed(self) -> bool:
        return self.request_rate == inf

    @property
    def title(self) -> str:
        if self.closed:
            return f"concurrency {self.max_concurrency}"
        cap = f"at most {self.max_concurrency} in flight"
        if not self.request_rate:
            return f"arrivals all at one time, {cap}"
        return f"request rate {self.request_rate:g}/s, burstiness {self.burstiness:g}, {cap}"


@dataclass(frozen=True, slots=True)
class Row:
    """One policy at one load: its runs, one for each seed, and the baseline's paired with them."""

    label: str
    runs: tuple[Summary, ...]
    paired: tuple[tuple[Summary, Summary], ...]  # (run, the baseline's run)

    @property
    def policy(self) -> str:
        return self.runs[0].policy

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    @property
    def cost_shares(self) -> dict[str, float]:
        """Mean over seeds of the share of step time by origin."""
        n = len(self.runs)
        return {name: sum(run.cost_shares[name] for run in self.runs) / n for name in SOURCES}

    def estimate(self, key: str) -> Estimate | None:
        """Mean over seeds with its interval; ``speedup`` is the mean of the per-seed ratios."""
        if key == SPEEDUP:
            return self.ratio(lambda ours, theirs: _ratio(_throughput(ours), _throughput(theirs)))
        values = (run.number(key) for run in self.runs)
        return estimate([value for value in values if value is not None])

    def ratio(self, of: Callable[[Summary, Summary], float | None]) -> Estimate | None:
        """Mean over seeds of what `of` makes of a run and the baseline's; None values left out."""
        values = [of(ours, theirs) for ours, theirs in self.paired]
        return estimate([value for value in values if value is not None])


@dataclass(frozen=True, slots=True)
class Block:
    """All policies at one load, the known ones first."""

    load: Load
    rows: tuple[Row, ...]
    baseline: str = BASELINE  # label of the policy that ratios are over


@dataclass(frozen=True, slots=True)
class Comparison:
    """All loads of one setting."""

    trace: dict[str, Any]
    latency: dict[str, Any]
    blocks: tuple[Block, ...] = field(repr=False)
    baseline: str = BASELINE

    @property
    def runs(self) -> list[Summary]:
        return [run for block in self.blocks for row in block.rows for run in row.runs]

    @property
    def labels(self) -> list[str]:
        """Every policy's label once, in table order."""
        return in_order(row.label for block in self.blocks for row in block.rows)


def compare(summaries: Sequence[Summary], baseline: str = BASELINE) -> list[Comparison]:
    """One comparison per setting, by name.

    Args:
        baseline: label of the policy that ratios are over.

    Raises:
        InputError: two different results for one policy, load and seed (equal ones count once),
            or a baseline that none of them is of.
    """
    labels = label_policies(summaries, lambda run: (_setting(run), _load(run)))
    known = in_order(labels.values())
    if known and baseline not in (BASELINE, *known):
        raise InputError(f"--baseline {baseline} is of no run; accepted: {', '.join(known)}")
    settings: dict[str, list[Summary]] = defaultdict(list)
    for run in summaries:
        settings[_setting(run)].append(run)
    found = [_comparison(runs, labels, baseline) for _, runs in sorted(settings.items())]
    return sorted(found, key=lambda one: (one.trace["recording"], one.latency["profile"]))


def _setting(run: Summary) -> str:
    data = run.data
    trace = {key: value for key, value in data["trace"].items() if key != _FOLLOWS_LOAD}
    parts = [trace, data["latency"], data["what_if"], data.get("ttft_note")]
    parts += [data.get("server"), data.get("workload")]
    return json.dumps(parts, sort_keys=True)


def _load(run: Summary) -> Load:
    rate = run.request_rate
    spread = 0 < rate < inf  # else there are no gaps between arrivals
    burstiness = run.data["burstiness"] if spread else 1.0
    return Load(rate, run.data["max_concurrency"], burstiness)


def _comparison(runs: list[Summary], labels: dict, baseline: str) -> Comparison:
    loads: dict[Load, list[Summary]] = defaultdict(list)
    for run in runs:
        loads[_load(run)].append(run)
    blocks = tuple(_block(load, group, labels, baseline) for load, group in sorted(loads.items()))
    return Comparison(runs[0].data["trace"], runs[0].data["latency"], blocks, baseline)


def _block(load: Load, runs: list[Summary], labels: dict, baseline: str) -> Block:
    by_label: dict[str, list[Summary]] = defaultdict(list)
    for run in runs:
        by_label[labels[run.path]].append(run)
    base = {_pairing(run): run for run in by_label.get(baseline, ())}
    rows = tuple(_row(label, by_label[label], base) for label in in_order(by_label))
    return Block(load, rows, baseline)


def _row(label: str, runs: Iterable[Summary], baseline: dict) -> Row:
    by_seed: dict[int, Summary] = {}
    for run in sorted(runs, key=lambda run: (run.seed, str(run.path))):
        other = by_seed.setdefault(run.seed, run)
        if other.data != run.data:
            raise InputError(
                f"{other.path} and {run.path}: different results for policy {label}, "
                f"{_load(run).title}, seed {run.seed}; give the folder of one of them"
            )
    pairs = [(run, baseline.get(_pairing(run))) for run in by_seed.values()]
    paired = tuple((run, base) for run, base in pairs if base is not None)
    return Row(label, tuple(by_seed.values()), paired)


def _pairing(run: Summary) -> tuple[int, int]:
    """Runs that saw the same requests in the same order."""
    return run.seed, run.data["num_prompts"]


def _throughput(run: Summary) -> float:
    return run.data["output_throughput"]


def _ratio(ours: float, theirs: float) -> float | None:
    return ours / theirs if theirs > 0 else None
