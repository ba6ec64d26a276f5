"""How much of what can be gained over plain decoding a policy gains: runs against hindsight bounds.

    reach = (policy - plain) / (bound - plain), in output tokens/s

The bounds are those of the simulator's task `bounds`: O2 and O3 for a lone request, O5 for a batch;
plain decoding is theirs too, of the same texts at the same constant batch. "In the order" bounds
policies that verify first nodes of the bounds' own order, "free nodes" all whose candidates are its
children. A run weighs texts by its window, the bounds weigh each once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas
from pydantic import Field, model_validator

from analysis.compare.comparison import Comparison, compare
from analysis.read.files import Number, Positive, Schema, Text, checked, node
from analysis.read.runs import read_runs, values
from analysis.text.tables import records_of
from traces.common.errors import InputError
from traces.common.json import read_json
from traces.common.table import BLANK, FORMATS, Table

_FIRST = ("profile", "content_hash")  # of the keys that differ, those that say most
_HEADINGS = ["concurrency", "policy", "seeds", "tokens/s", "plain", "bound in the order", "reach",
             "bound of free nodes", "reach of it"]  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "run_dirs", metavar="RUN_DIR", nargs="+", help="every summary.json below it is read"
    )
    parser.add_argument(
        "--bounds",
        type=Path,
        required=True,
        metavar="BOUNDS.json",
        help="what python -m simulator task=bounds wrote for the same recording and profile",
    )
    parser.add_argument("--format", choices=FORMATS, default="table")


def run(args: argparse.Namespace, _command: str = "") -> list[Path]:
    """Print the table; writes no file."""
    bounds = read_bounds(args.bounds)
    found = reaches(compare(read_runs(args.run_dirs)), bounds)
    several = ["setting"] if found["setting"].any() else []
    table = Table(
        [*several, *_HEADINGS],
        [[row[one] for one in several] + _cells(row) for _, row in found.iterrows()],
        _records(found, bounds),
        notes=list(_notes(found, bounds)),
        align="l" * len(several) + "rl" + "r" * (len(_HEADINGS) - 2),
        label="tab:reach",
    )
    table.emit(args.format)
    return []


# ---------------------------------------------------------------- the file of bounds

_RATE = node(output_throughput=Number)


class _Batch(Schema):
    batch: Positive
    bounds: node(plain=_RATE, o5=_RATE, o5_free=_RATE, o2=_RATE | None, o3=_RATE | None)

    @model_validator(mode="after")
    def _of_one(self):
        if self.batch == 1 and None in (self.bounds.o2, self.bounds.o3):
            raise ValueError("is of batch 1: bounds.o2 or bounds.o3 is missing")
        return self


class _File(Schema):
    format: Literal["specdec-bounds"]
    version: Literal[1]
    trace: node(content_hash=Text, recording=Text)
    latency: node(profile=Text)
    order: dict[str, Any] = Field({})
    batches: Annotated[list[_Batch], Field(min_length=1)]

    @model_validator(mode="after")
    def _once(self):
        sizes = [one.batch for one in self.batches]
        for at, batch in enumerate(sizes):
            if batch in sizes[:at]:
                raise ValueError(
                    f"batches[{at}].batch is {batch} once more, expected each size once"
                )
        return self


@dataclass(frozen=True, slots=True)
class Bounds:
    """One checked ``bounds.json``; ``data`` holds it as written.

    ``rates`` has tokens/s by batch size: ``plain`` decoding, the bound ``in_order``, and that of
    ``free`` nodes. A lone request has its own schedules (O2, O3), a batch O5 of both kinds.
    """

    path: Path
    data: Mapping[str, Any] = field(repr=False)
    rates: pandas.DataFrame


def read_bounds(path: Path) -> Bounds:
    """Checked bounds; InputError naming the file and the first thing that is wrong."""
    data = read_json(path, "bounds")
    if not isinstance(data, dict) or data.get("format") != "specdec-bounds":
        raise InputError(f'{path}: not bounds, expected format "specdec-bounds"')
    rates = {}
    for one in checked(_File, data, path).batches:
        own = one.bounds
        order, free = (own.o2, own.o3) if one.batch == 1 else (own.o5, own.o5_free)
        rates[one.batch] = [rate.output_throughput for rate in (own.plain, order, free)]
    columns = ["plain", "in_order", "free"]
    return Bounds(path, data, pandas.DataFrame.from_dict(rates, "index", columns=columns))


# ---------------------------------------------------------------- runs beside them


def reaches(comparisons: Sequence[Comparison], bounds: Bounds) -> pandas.DataFrame:
    """Every policy at every concurrency, a row each.

    Columns: ``setting``, ``max_concurrency``, ``policy``, ``seeds``, ``short`` (whether a run had
    too few requests for a full batch), ``output_throughput`` with ``_ci95`` of its interval,
    ``plain``, and for either bound (``in_order``, ``free``) ``bound_X``, ``reach_X`` and
    ``reach_X_ci95``, NaN where there is no gain.

    Raises:
        InputError: runs of another recording, split, profile or cost setting than the bounds',
            of several replicas or a workload's file, with arrivals instead of a closed loop, or
            of a batch size without a bound.
    """
    batches = [_batches(one, bounds) for one in comparisons]
    lost = sorted(set().union(*batches) - set(bounds.rates.index))
    if lost:
        what = f"batch {lost[0]} has" if len(lost) == 1 else f"batches {_listed(lost)} have"
        every = sorted(set(bounds.rates.index).union(*batches))
        trace, latency = bounds.data["trace"], bounds.data["latency"]
        raise InputError(
            f"{what} no bound in {bounds.path}, which has {_listed(sorted(bounds.rates.index))}; "
            f"all: python -m simulator task=bounds trace.recording={trace['recording']} "
            f"latency={latency['profile']} 'bounds.batches=[{','.join(map(str, every))}]' (with "
            "the other words that these bounds were made with)"
        )
    found = []
    for one, batch in zip(comparisons, batches, strict=True):
        rate, row = one.estimates("output_throughput"), one.runs["row"]
        plain = bounds.rates["plain"]
        frame = pandas.DataFrame({
            "setting": one.differs,
            "max_concurrency": one.rows["load"].map(lambda load: load.max_concurrency),
            "policy": one.rows["label"],
            "seeds": one.rows["seeds"],
            "short": (values(one.runs, "window.kind") == "whole run").groupby(row).any(),
            "output_throughput": rate["mean"],
            "output_throughput_ci95": rate["half"],
            "plain": batch.map(plain),
        })  # fmt: skip
        for name in ("in_order", "free"):
            gain = (bounds.rates[name] - plain).where(bounds.rates[name] > plain)
            own = row.map(batch)
            reach = one.estimates((one.runs["output_throughput"] - own.map(plain)) / own.map(gain))
            frame[f"bound_{name}"] = batch.map(bounds.rates[name])
            frame[f"reach_{name}"], frame[f"reach_{name}_ci95"] = reach["mean"], reach["half"]
        found.append(frame)
    return pandas.concat(found, ignore_index=True)


def _batches(comparison: Comparison, bounds: Bounds) -> pandas.Series:
    """Requests in every step of the closed loop of each row.

    InputError where the bounds are of others: they are of one server's batch, and of the recorded
    texts as they are.
    """
    data, path = comparison.first, comparison.runs["path"].iloc[0]
    replicas, workload = (data.get("server") or {}).get("replicas") or 1, data.get("workload")
    if replicas != 1:
        raise InputError(
            f"{path}: server.replicas is {replicas}, expected 1: the bounds are of the batch of "
            "one server"
        )
    if isinstance(workload, dict):
        raise InputError(
            f"{path}: workload is {workload.get('file')}, expected the recorded texts, of which "
            "the bounds are"
        )
    for group, of in (("trace", _trace), ("latency", dict)):
        found, expected = of(data[group]), of(bounds.data[group])
        for key in (*_FIRST, *sorted({*found, *expected} - set(_FIRST))):
            if found.get(key) != expected.get(key):
                raise InputError(
                    f"{path}: {group}.{key} is {_short(found, key)}, expected "
                    f"{_short(expected, key)} as in {bounds.path}"
                )
    for load in comparison.rows["load"]:
        if not load.closed:
            runs = comparison.runs
            raise InputError(
                f"{runs.loc[runs['load'] == load, 'path'].iloc[0]}: request_rate is "
                f"{load.request_rate:g}, expected a closed loop: the bounds are of constant batches"
            )
    most = (data.get("server") or {}).get("max_num_seqs")
    return comparison.rows["load"].map(lambda load: load.max_concurrency).clip(upper=most or None)


def _trace(node: Mapping[str, Any]) -> dict[str, Any]:
    """What decides which texts are served; a recording may lie elsewhere under another name."""
    domains = node.get("domains")
    return {
        "content_hash": node["content_hash"],
        "split": node.get("split"),
        "domains": sorted(domains, key=repr) if isinstance(domains, list) else domains,
    }


def _short(node: Mapping[str, Any], key: str) -> str:
    """A value as text; a hash that an older file lacks is not known."""
    text = repr(node.get(key)) if key in node or key != "content_hash" else "not known"
    return text if len(text) <= 40 else text[:37] + "..."


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


# ---------------------------------------------------------------- the table


def _cells(row: pandas.Series) -> list[str]:
    def shown(key: str, form: str) -> str:
        if pandas.isna(row[key]):
            return BLANK
        half = row[f"{key}_ci95"]
        text = form.format(round(row[key], 4) + 0.0)  # not -0.0
        return text if pandas.isna(half) else f"{text} ±{form.format(half)}"

    return [
        str(row["max_concurrency"]),
        row["policy"],
        str(len(row["seeds"])),
        shown("output_throughput", "{:.1f}"),
        f"{row['plain']:.1f}",
        f"{row['bound_in_order']:.1f}",
        shown("reach_in_order", "{:.1%}"),
        f"{row['bound_free']:.1f}",
        shown("reach_free", "{:.1%}"),
    ]


def _notes(found: pandas.DataFrame, bounds: Bounds) -> Iterator[str]:
    trace, latency, order = (bounds.data.get(key, {}) for key in ("trace", "latency", "order"))
    yield f"{trace['recording']} on {latency['profile']}; bounds: {bounds.path}"
    named = ", ".join(f"{key} {value}" for key, value in order.items())
    yield f"order of the bounds: {named}; reach = (policy - plain) / (bound - plain) in tokens/s"
    yield "bounds: O2 and O3 for a lone request, O5 (affine floor of the step's cost) for a batch"
    yield "a run weighs texts by its window, the bounds each once: many prompts make them agree"
    short = sorted(set(found.loc[found["short"], "policy"]))
    if short:
        yield f"too few requests for a full batch, so lower than it should be: {', '.join(short)}"
    if bounds.data.get("what_if"):
        yield f"what-if: {bounds.data.get('what_if_reason')}"


def _records(found: pandas.DataFrame, bounds: Bounds) -> list[dict[str, Any]]:
    """In tokens/s and shares."""
    trace, latency = bounds.data["trace"], bounds.data["latency"]
    named = {
        "recording": trace["recording"],
        "content_hash": trace["content_hash"],
        "latency_profile": latency["profile"],
        "latency_content_hash": latency.get("content_hash"),
    }
    seeds = found["seeds"].map(lambda own: " ".join(map(str, own)))
    shown = found.assign(seeds=seeds).drop(columns=["short", "output_throughput_ci95"])
    return [named | one for one in records_of(shown)]
