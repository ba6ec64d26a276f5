"""How much of what can be gained over plain decoding a policy gains: runs against hindsight bounds.

    reach = (policy - plain) / (bound - plain), in output tokens/s

The bounds are those of the simulator's task `bounds`: O2 and O3 for a lone request, O5 for a batch;
plain decoding is theirs too, of the same texts at the same constant batch. "In the order" bounds
policies that verify first nodes of the bounds' own order, "free nodes" all whose candidates are its
children. A run weighs texts by its window, the bounds weigh each once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas

from analysis.compare.comparison import Comparison, compare
from analysis.compare.loads import Load
from analysis.read.bounds import Bounds, read_bounds
from analysis.read.runs import read_runs, values
from analysis.text.tables import records_of
from traces.common.errors import InputError
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
    _table(reaches(compare(read_runs(args.run_dirs)), bounds), bounds).emit(args.format)
    return []


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
    for one in comparisons:
        _check_setting(one, bounds)
    batches = [one.rows["load"].map(lambda load, one=one: _batch(load, one)) for one in comparisons]
    _check_batches(set().union(*batches), bounds)
    found = []
    for one, batch in zip(comparisons, batches, strict=True):
        plain, in_order, free = (batch.map(lambda size, at=at: bounds.rates[size][at])
                                 for at in range(3))  # fmt: skip
        rate = one.estimates("output_throughput")
        whole = (values(one.runs, "window.kind") == "whole run").groupby(one.runs["row"]).any()
        frame = pandas.DataFrame({
            "setting": one.differs,
            "max_concurrency": one.rows["load"].map(lambda load: load.max_concurrency),
            "policy": one.rows["label"],
            "seeds": one.rows["seeds"],
            "short": whole,
            "output_throughput": rate["mean"],
            "output_throughput_ci95": rate["half"],
            "plain": plain,
        })  # fmt: skip
        for name, bound in (("in_order", in_order), ("free", free)):
            gain = (bound - plain).where(bound > plain)
            row = one.runs["row"]
            share = (one.runs["output_throughput"] - row.map(plain)) / row.map(gain)
            reach = one.estimates(share)
            frame[f"bound_{name}"] = bound
            frame[f"reach_{name}"], frame[f"reach_{name}_ci95"] = reach["mean"], reach["half"]
        found.append(frame)
    return pandas.concat(found, ignore_index=True)


def _check_setting(comparison: Comparison, bounds: Bounds) -> None:
    """The bounds are of one server's batch, and of the recorded texts as they are."""
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


def _batch(load: Load, comparison: Comparison) -> int:
    """Requests in every step of a closed loop."""
    if not load.closed:
        runs = comparison.runs
        raise InputError(
            f"{runs.loc[runs['load'] == load, 'path'].iloc[0]}: request_rate is "
            f"{load.request_rate:g}, expected a closed loop: the bounds are of constant batches"
        )
    most = (comparison.first.get("server") or {}).get("max_num_seqs")
    return min(load.max_concurrency, most or load.max_concurrency)


def _check_batches(served: set[int], bounds: Bounds) -> None:
    """InputError with every batch that has no bound, and the command that makes them."""
    lost = sorted(served - set(bounds.rates))
    if lost:
        what = f"batch {lost[0]} has" if len(lost) == 1 else f"batches {_listed(lost)} have"
        every = sorted({*served, *bounds.rates})
        trace, latency = bounds.data["trace"], bounds.data["latency"]
        raise InputError(
            f"{what} no bound in {bounds.path}, which has {_listed(sorted(bounds.rates))}; all: "
            f"python -m simulator task=bounds trace.recording={trace['recording']} "
            f"latency={latency['profile']} 'bounds.batches=[{','.join(map(str, every))}]' (with "
            "the other words that these bounds were made with)"
        )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _table(found: pandas.DataFrame, bounds: Bounds) -> Table:
    several = found["setting"].any()
    rows = [
        [
            *([row["setting"]] if several else []),
            str(row["max_concurrency"]),
            row["policy"],
            str(len(row["seeds"])),
            _shown(row, "output_throughput", "{:.1f}"),
            f"{row['plain']:.1f}",
            f"{row['bound_in_order']:.1f}",
            _shown(row, "reach_in_order", "{:.1%}"),
            f"{row['bound_free']:.1f}",
            _shown(row, "reach_free", "{:.1%}"),
        ]
        for _, row in found.iterrows()
    ]
    return Table(
        [*(["setting"] if several else []), *_HEADINGS],
        rows,
        _records(found, bounds),
        notes=list(_notes(found, bounds)),
        align="l" * bool(several) + "rl" + "r" * (len(_HEADINGS) - 2),
        label="tab:reach",
    )


def _shown(row: pandas.Series, key: str, form: str) -> str:
    if pandas.isna(row[key]):
        return BLANK
    half = row[f"{key}_ci95"]
    text = form.format(round(row[key], 4) + 0.0)  # not -0.0
    return text if pandas.isna(half) else f"{text} ±{form.format(half)}"


def _notes(found: pandas.DataFrame, bounds: Bounds) -> Iterable[str]:
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
