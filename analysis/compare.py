"""Runs grouped into settings, loads and policies; speedups paired by seed.

A setting is what must be equal before two numbers may stand in one table, see
`analysis.settings`. Other settings get blocks of their own, and a speedup never crosses them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from analysis.intervals import Estimate, estimate
from analysis.look import in_order, natural
from analysis.metrics import PLAIN, SPEEDUP
from analysis.settings import distinctions, leaves, objectives_of, setting_keys
from analysis.summaries import SOURCES, Summary
from analysis.variants import label_policies
from traces.common.errors import InputError

BASELINE = PLAIN
_OF_OBJECTIVES = ("goodput", "request_goodput", "config_hash")  # keys that follow from them


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """A closed loop (``request_rate`` inf) or arrivals with a cap on requests in flight.

    A rate of 0 is none: of a file whose requests all come at one time.
    """

    request_rate: float
    max_concurrency: int
    burstiness: float  # 1 where no gaps are drawn
    ramp: int = 0  # completions at either end of an open loop that its window leaves out
    of_file: bool = False  # requests come when a workload's file says

    @property
    def closed(self) -> bool:
        return self.request_rate == inf

    @property
    def title(self) -> str:
        if self.closed:
            return f"concurrency {self.max_concurrency}"
        rest = f"at most {self.max_concurrency} in flight"
        rest += f", ramp {self.ramp}" if self.ramp else ""
        if not self.request_rate:
            return f"arrivals all at one time, {rest}"
        gaps = "the file's arrivals" if self.of_file else f"burstiness {self.burstiness:g}"
        return f"request rate {self.request_rate:g}/s, {gaps}, {rest}"

    @property
    def way(self) -> Load:
        """What loads share that differ in the concurrency, or the request rate, alone."""
        return replace(self, max_concurrency=0) if self.closed else replace(self, request_rate=0.0)


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
    def requests(self) -> int:
        """That were sent, of all seeds."""
        return sum(run.data["num_prompts"] for run in self.runs)

    @property
    def rejected(self) -> int:
        """Requests of all seeds that were never served."""
        return sum(int(run.number("rejected") or 0) for run in self.runs)

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
    differs: str = ""  # what sets it apart from the others beside recording and profile

    @property
    def objectives(self) -> dict[str, float] | None:
        """Of goodput, in milliseconds; None without any."""
        return objectives_of(self.runs)

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
    setting = setting_keys(summaries)
    labels = label_policies(summaries, lambda run: (setting[run.path], load_of(run)))
    known = in_order(labels.values())
    if known and baseline not in (BASELINE, *known):
        raise InputError(f"--baseline {baseline} is of no run; accepted: {', '.join(known)}")
    settings: dict[str, list[Summary]] = defaultdict(list)
    for run in summaries:
        settings[setting[run.path]].append(run)
    found = [_comparison(runs, labels, baseline) for _, runs in sorted(settings.items())]
    apart = distinctions([leaves(one.runs[0], one.objectives) for one in found])
    named = [replace(one, differs=text) for one, text in zip(found, apart, strict=True)]
    return sorted(named, key=_place)


def _place(one: Comparison) -> tuple:
    return one.trace["recording"], one.latency["profile"], natural(one.differs)


def load_of(run: Summary) -> Load:
    """The load that a run was under."""
    rate, most = run.request_rate, run.data["max_concurrency"]
    if rate == inf:
        return Load(rate, most, 1.0)
    of_file = _has_times(run.data.get("workload"), run.data["request_rate"])
    drawn = rate > 0 and not of_file  # else there are no gaps to be drawn
    burstiness = run.data["burstiness"] if drawn else 1.0
    return Load(rate, most, burstiness, int(run.number("ramp") or 0), rate > 0 and of_file)


def _has_times(workload: Any, rate: float | None) -> bool:
    """Whether requests come when the workload's file says: its rate is the run's."""
    if not isinstance(workload, Mapping):
        return False
    if "arrivals" in workload:
        return workload["arrivals"] == "file"
    return "played_rate" in workload and workload["played_rate"] == rate


def _comparison(runs: list[Summary], labels: dict, baseline: str) -> Comparison:
    loads: dict[Load, list[Summary]] = defaultdict(list)
    for run in runs:
        loads[load_of(run)].append(run)
    blocks = tuple(_block(load, group, labels, baseline) for load, group in sorted(loads.items()))
    return Comparison(runs[0].data["trace"], runs[0].data["latency"], blocks, baseline)


def _block(load: Load, runs: list[Summary], labels: dict, baseline: str) -> Block:
    by_label: dict[str, list[Summary]] = defaultdict(list)
    for run in runs:
        by_label[labels[run.path]].append(run)
    base = {_pairing(run): run for run in by_label.get(baseline, ())}
    rows = tuple(_row(label, by_label[label], base) for label in in_order(by_label))
    return Block(load, rows, baseline)


def _judged(run: Summary) -> bool:
    return bool(run.data.get("goodput"))


def _unjudged(run: Summary) -> dict[str, Any]:
    """The results without what objectives add to them."""
    domains = run.data.get("by_domain") or {}
    kept = {key: value for key, value in run.data.items() if key not in _OF_OBJECTIVES}
    return kept | {
        "by_domain": {
            name: {key: value for key, value in one.items() if key not in _OF_OBJECTIVES}
            for name, one in domains.items()
        }
    }


def _row(label: str, runs: Iterable[Summary], baseline: dict) -> Row:
    by_seed: dict[int, Summary] = {}
    for run in sorted(runs, key=lambda run: (run.seed, str(run.path))):
        other = by_seed.setdefault(run.seed, run)
        if _judged(run) and not _judged(other):
            by_seed[run.seed] = run  # the same run, with objectives
        if _unjudged(other) != _unjudged(run) or (
            _judged(other) and _judged(run) and other.data != run.data
        ):
            raise InputError(
                f"{other.path} and {run.path}: different results for policy {label}, "
                f"{load_of(run).title}, seed {run.seed}; give the folder of one of them"
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
