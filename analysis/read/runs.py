"""Finished runs as one table: every ``summary.json`` below some folders, a row each.

Columns of the frame, whose index counts the runs by path:

- ``path``: the summary's; ``data``: the summary as written;
- ``policy``, ``what_if``, and as whole numbers ``seed``, ``num_prompts``, ``completed``,
  ``max_concurrency``; ``rejected`` is 0 where a summary lacks it;
- ``request_rate``: requests per second, infinite for a closed loop, 0 where the file has null;
- every number of the summary under its own key, as a float: ``output_throughput`` (tokens/s),
  ``median_tpot_ms`` and so on; NaN where it is null or not finite;
- every leaf of its mappings, where they have 200 at most, under a dotted key: ``trace.recording``,
  ``latency.num_gpus``, ``server.replicas``, ``window.kind``, ``step_ms.draft``,
  ``cost_shares.time.modelled``, ...

A key that no run has is no column: `numbers` and `values` stand in for it. What is by domain is in
a frame of its own, `domains`. Times within a run are in `analysis.read.tables`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas
from pydantic import BeforeValidator, Field, model_validator

from analysis.read.files import Count, Number, Positive, Schema, Share, Text, checked, flat, node
from traces.common.errors import InputError
from traces.common.json import read_json

FILE_NAME = "summary.json"
SOURCES = ("measured", "interpolated", "modelled", "clamped")  # of a step's time
_WHOLE = ("seed", "num_prompts", "completed", "max_concurrency")
_MOST = 200  # leaves of a mapping: one that holds a table makes no columns
_APART = ("by_domain", "acceptance_length_by_budget")  # in frames of their own

MaybeNumber = Number | None
Rate = Annotated[
    float,
    Field(gt=0, allow_inf_nan=True),
    BeforeValidator(lambda value: float("inf") if value == "inf" else value),
]
Budget = Annotated[str, Field(pattern=r"^\d+$")]
_Trace = node(recording=Text, content_hash=Text, temperature=MaybeNumber, domains=list[str] | None)
_Latency = node(profile=Text, content_hash=Text | None, num_gpus=Positive | None)
_Window = node(kind=Text | None, start_s=MaybeNumber, end_s=MaybeNumber, requests=Count | None)


class _Summary(Schema):
    """What must hold before anything is computed from a summary."""

    format: Literal["specdec-summary"]
    version: Literal[1]
    policy: Text
    policy_fit: dict
    trace: _Trace
    latency: _Latency
    what_if: bool
    max_concurrency: Positive
    request_rate: Rate | None
    burstiness: Number
    seed: Count
    num_prompts: Positive
    completed: Count
    output_throughput: Number
    median_tpot_ms: MaybeNumber
    p99_tpot_ms: MaybeNumber
    acceptance_length: MaybeNumber
    draft_nodes_per_request: MaybeNumber
    share_verified_accepted: Share | None
    ttft_note: str | None
    cost_shares: node(time=node(**dict.fromkeys(SOURCES, Share)))
    acceptance_length_by_budget: dict[Budget, Number] | None
    policy_config: dict | None = None
    policy_code: node(target=Text | None, sha256=str | None) | None = None
    server: node(max_num_seqs=Positive | None, replicas=Positive | None) | None = None
    window: _Window | None = None
    step_ms: dict[str, MaybeNumber] | None = None
    goodput: dict[str, MaybeNumber] | None = None
    by_domain: dict[str, dict] | None = None
    rejected: Count | None = None
    ramp: Count | None = None

    @model_validator(mode="after")
    def _whole(self):
        over = self.completed + (self.rejected or 0)  # rejected ones never complete
        if over < self.num_prompts:
            raise ValueError(f"incomplete: {over} of {self.num_prompts} prompts done")
        if over > self.num_prompts:
            raise ValueError(f"{over} prompts completed or rejected, expected {self.num_prompts}")
        median, p99 = self.median_tpot_ms, self.p99_tpot_ms
        if None not in (median, p99) and median > p99 * (1 + 1e-9):
            raise ValueError(f"median_tpot_ms is {median}, expected at most p99_tpot_ms, {p99}")
        return self


def read_runs(folders: Iterable[str | os.PathLike]) -> pandas.DataFrame:
    """Every run below the folders, each file once, by path.

    Raises:
        InputError: a folder that is missing or holds no run, or a file that is unreadable,
            incomplete or of another format or version.
    """
    paths: list[Path] = []
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise InputError(
                f"{folder}: not a folder; expected one with {FILE_NAME} files below it"
            )
        found = sorted(folder.rglob(FILE_NAME))
        if not found:
            raise InputError(f"{folder}: no {FILE_NAME} below this folder")
        paths += found
    return runs_at(paths)


def runs_at(paths: Iterable[Path]) -> pandas.DataFrame:
    """The runs of these summaries, each once, by path; InputError for one that is damaged."""
    return pandas.DataFrame([_record(path) for path in sorted({path.resolve() for path in paths})])


def check_summary(data: Any, path: Path) -> None:
    """InputError with one line about the first thing that is wrong."""
    if not isinstance(data, dict) or data.get("format") != "specdec-summary":
        raise InputError(f'{path}: not a result summary, expected format "specdec-summary"')
    checked(_Summary, data, path)


def _record(path: Path) -> dict[str, Any]:
    data = read_json(path, "a finished summary")
    check_summary(data, path)
    found = {name: _value(node) for name, node in data.items() if not isinstance(node, dict)}
    for name in [name for name in data if name not in found and name not in _APART]:
        own = list(islice(flat(data[name], f"{name}."), _MOST + 1))
        found |= {key: _value(value) for key, value in own if len(own) <= _MOST}
    rate = data["request_rate"]
    own = {"path": path, "data": data, "request_rate": 0.0 if rate is None else float(rate)}
    own |= {name: data[name] for name in _WHOLE}
    return found | own | {"rejected": data.get("rejected") or 0}


def _value(value: Any) -> Any:
    """Numbers as floats, NaN for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        return value
    return float(value) if value is not None and isfinite(value) else float("nan")


def numbers(runs: pandas.DataFrame, key: str) -> pandas.Series:
    """A column of numbers, NaN where a run's value is none or no number."""
    return values(runs, key).map(lambda one: one if isinstance(one, float) else float("nan"))


def values(runs: pandas.DataFrame, key: str) -> pandas.Series:
    """A column as it is; None everywhere where no run has it."""
    return runs[key] if key in runs else pandas.Series(None, runs.index, dtype=object)


def domains(runs: pandas.DataFrame, key: str) -> pandas.DataFrame:
    """A number of ``by_domain``, a row for each run (index) and a column for each domain.

    Domains stand as the recordings have them; NaN where a run has no such number above 0.
    """
    found, order = {}, {}
    for run, data in runs["data"].items():
        nodes = data.get("by_domain") or {}
        known = [name for name in data["trace"].get("domains") or () if name in nodes]
        order |= dict.fromkeys((*known, *nodes))
        own = {name: node.get(key) for name, node in nodes.items()}
        found[run] = {
            name: float(value)
            for name, value in own.items()
            if isinstance(value, int | float) and value > 0
        }
    return pandas.DataFrame.from_dict(found, "index").reindex(runs.index, columns=list(order))
