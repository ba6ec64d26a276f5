"""Runs grouped into settings, loads and policies; speedups paired by seed.

A setting is what must be equal before two numbers may stand in one table, see
`analysis.compare.settings`. Other settings are comparisons of their own, and a ratio never crosses
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas

from analysis.compare.loads import Load, load_of
from analysis.compare.metrics import PLAIN, SPEEDUP, estimates
from analysis.compare.settings import distinctions, label_policies, leaves, setting_keys
from analysis.look import in_order, natural, policy_rank
from analysis.read.runs import SOURCES, numbers
from traces.common.errors import InputError

BASELINE = PLAIN
PARTLY = 0.05  # share of modelled or clamped step time from which a marker is hollow
_OF_OBJECTIVES = ("goodput", "request_goodput", "config_hash")  # keys that follow from them


@dataclass(frozen=True, slots=True)
class Comparison:
    """All loads of one setting.

    Attributes:
        runs: as read, one for each policy, load and seed, with the columns ``label`` (of the
            policy), ``load``, ``row`` (index of `rows`), ``base`` (index of the baseline's run of
            the same load, seed and requests, NaN without one) and ``speedup`` (over it).
        rows: a policy at a load each, by load, the known policies first: ``load``, ``label``,
            ``policy``, ``count`` (of runs), ``seeds``, ``sent`` and ``rejected`` (requests of all
            seeds), ``paired`` (runs with a baseline), ``hollow`` (whether more than `PARTLY` of
            the step time is modelled or clamped), and the mean share of step time by origin under
            the names of `SOURCES`.
        baseline: label of the policy that ratios are over.
        differs: what sets it apart from the others beside recording and profile.
    """

    runs: pandas.DataFrame = field(repr=False)
    rows: pandas.DataFrame = field(repr=False)
    baseline: str = BASELINE
    differs: str = ""

    @property
    def first(self) -> Mapping[str, Any]:
        """The first run's summary: settings are those of all."""
        return self.runs["data"].iloc[0]

    @property
    def trace(self) -> Mapping[str, Any]:
        return self.first["trace"]

    @property
    def latency(self) -> Mapping[str, Any]:
        return self.first["latency"]

    @property
    def objectives(self) -> Mapping[str, float] | None:
        """Of goodput, in milliseconds; None without any."""
        found = (data.get("goodput") for data in self.runs["data"])
        return next((one for one in found if one), None)

    @property
    def labels(self) -> list[str]:
        """Every policy's label once, in table order."""
        return in_order(self.rows["label"])

    @property
    def title(self) -> str:
        """One line that names the setting."""
        name = f"{self.trace['recording']} on {self.latency['profile']}"
        return f"{name}; {self.differs}" if self.differs else name

    @property
    def why_what_if(self) -> str:
        """Why no engine like that of a what-if exists."""
        return self.first.get("what_if_reason") or "recording and latency differ in model"

    @property
    def blocks(self) -> list[tuple[Load, pandas.DataFrame]]:
        """Every load with its part of `rows`."""
        return list(self.rows.groupby("load"))

    def axes(self) -> Iterator[tuple[Load, pandas.DataFrame]]:
        """Rows whose loads differ in the concurrency, or the rate, alone, by what they share.

        By policy, then by ``x``, their place on the axis.
        """
        known = self.rows[self.rows["load"].map(lambda load: load.request_rate > 0)]
        known = known.assign(x=known["load"].map(lambda load: load.x))
        place = {label: at for at, label in enumerate(self.labels)}
        for way, own in known.groupby(known["load"].map(lambda load: load.way), sort=False):
            places = own.assign(place=own["label"].map(place)).sort_values(["place", "x"])
            yield way, own.loc[places.index]

    def estimates(self, key: str | pandas.Series) -> pandas.DataFrame:
        """Means over seeds with their intervals, in the order of `rows`.

        key: a column of `runs`, or numbers by run. See `analysis.compare.metrics.estimates`.
        """
        values = numbers(self.runs, key) if isinstance(key, str) else key
        return estimates(values, self.runs["row"]).reindex(self.rows.index)

    def of_baseline(self, values: pandas.Series) -> pandas.Series:
        """For each run the value of the baseline's run paired with it; NaN without a pair."""
        return self.runs["base"].map(values)


def compare(runs: pandas.DataFrame, baseline: str = BASELINE) -> list[Comparison]:
    """One comparison per setting, by name.

    Raises:
        InputError: two different results for one policy, load and seed (equal ones count once),
            or a baseline that none of them is of.
    """
    if runs.empty:
        return []
    runs = runs.assign(load=runs["data"].map(load_of), setting=setting_keys(runs))
    alike = pandas.Series(list(zip(runs["setting"], runs["load"])), runs.index)
    runs["label"] = label_policies(runs, alike)
    known = in_order(runs["label"])
    if baseline not in (BASELINE, *known):
        raise InputError(f"--baseline {baseline} is of no run; accepted: {', '.join(known)}")
    found = [_comparison(own, baseline) for _, own in runs.groupby("setting")]
    apart = distinctions([leaves(one.first, one.objectives) for one in found])
    named = [replace(one, differs=text) for one, text in zip(found, apart, strict=True)]
    return sorted(
        named,
        key=lambda one: (one.trace["recording"], one.latency["profile"], natural(one.differs)),
    )


def _comparison(runs: pandas.DataFrame, baseline: str) -> Comparison:
    """Of runs of one setting."""
    load, label, seed = runs["load"], runs["label"], runs["seed"]
    place = {
        at: (load[at], policy_rank(label[at]), natural(label[at]), seed[at]) for at in runs.index
    }
    runs = runs.loc[sorted(runs.index, key=lambda at: place[at])]
    groups = runs.groupby(["load", "label", "seed"], sort=False)
    runs = runs.loc[[_one_result(own) for _, own in groups]].copy()
    keys = ["load", "seed", "num_prompts"]
    base = runs.loc[runs["label"] == baseline, keys].reset_index(names="base")
    runs["base"] = runs[keys].merge(base, "left", keys)["base"].to_numpy()
    rows = runs.groupby(["load", "label"], sort=False)
    runs["row"] = rows.ngroup()
    made = rows.agg(
        policy=("policy", "first"),
        count=("seed", "size"),
        seeds=("seed", tuple),
        sent=("num_prompts", "sum"),
        rejected=("rejected", "sum"),
        paired=("base", "count"),
        **{name: (f"cost_shares.time.{name}", "mean") for name in SOURCES},
    ).reset_index()
    made["hollow"] = made[["modelled", "clamped"]].max(axis=1) > PARTLY
    found = Comparison(runs, made, baseline)
    base = found.of_baseline(runs["output_throughput"])
    runs[SPEEDUP] = runs["output_throughput"] / base.where(base > 0)
    return found


def _one_result(runs: pandas.DataFrame) -> int:
    """Index of the run that stands for all of one policy, load and seed: one with objectives.

    Runs with the same seed of another size, or with other results, are refused.
    """
    chosen = runs.index[0]
    for index, data in runs["data"].items():
        other = runs["data"][chosen]
        judged = bool(data.get("goodput")), bool(other.get("goodput"))
        if _unjudged(other) != _unjudged(data) or (all(judged) and other != data):
            load, label, seed = runs.loc[index, ["load", "label", "seed"]]
            raise InputError(
                f"{runs['path'][chosen]} and {runs['path'][index]}: different results for policy "
                f"{label}, {load.title}, seed {seed}; give the folder of one of them"
            )
        if judged == (True, False):
            chosen = index  # the same run, with objectives
    return chosen


def _unjudged(data: Mapping[str, Any]) -> dict[str, Any]:
    """The results without what objectives add to them."""
    nodes = [data, *(data.get("by_domain") or {}).values()]
    kept = [{k: v for k, v in node.items() if k not in _OF_OBJECTIVES} for node in nodes]
    return kept[0] | {"by_domain": dict(zip(data.get("by_domain") or {}, kept[1:]))}
