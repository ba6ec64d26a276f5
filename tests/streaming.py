"""The same run held and streamed, for tests of streamed results."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import simpy
from pyarrow import parquet

from simulator.cli.overrides import normalised
from simulator.cli.survey import composed_jobs, parse
from simulator.engine.arrivals import LazyWorkload, arrival_times, make_workload
from simulator.engine.compiled.server import FastServer
from simulator.engine.fleet import Fleet
from simulator.engine.run import Job, load, prepare
from simulator.results.files import RunFiles
from simulator.results.ledger import BLOCK, Ledger
from simulator.results.quantiles import EXACT
from simulator.results.summary import finish, sums_for
from tests.synthetic import make_pool
from traces.recordings.files import write_recording


def tiny_recording(folder: Path, **options) -> Path:
    """A file of short texts in two domains."""
    path = folder / "tiny.safetensors"
    options = {"sequences": 24, "depths": 8, "max_new_tokens": 12} | options
    recording = make_pool(np.random.default_rng(5), **options)
    write_recording(path, recording.meta, recording.arrays)
    return path


def make_job(path: Path, *words: str) -> Job:
    """A prepared job on the recording in `path`."""
    (config,) = composed_jobs(parse(normalised([f"trace.recording={path}", *words])))
    return prepare(load(config))


def serve(job: Job, ledger, fast: bool = False) -> int:
    """Serve the ledger's workload; returns how many decisions were near a threshold."""
    capacity, times = job.settings.capacity, arrival_times(job.settings, ledger.workload)
    parts = (job.policy, job.recording, job.cost, ledger.workload, capacity, job.tables, ledger)
    if fast:
        FastServer(*parts, arrival_s=times).run()
        return job.policy.near_threshold
    fleet = Fleet(simpy.Environment(), *parts, job.settings.server, following=job.following)
    fleet.run()
    return fleet.near_threshold


def in_memory(job: Job, folder: Path, fast: bool = False) -> dict[str, Any]:
    """The summary of a run whose tables are held."""
    work = make_workload(job.settings, job.recording, job.sequences, job.lengths)
    with RunFiles(folder) as files:
        ledger = Ledger(work, files, sums_for(job))
        near = serve(job, ledger, fast)
        return finish(job, ledger, capacity=job.settings.server.kv_blocks, near_threshold=near)


def streamed(
    job: Job, folder: Path, fast: bool = False, block: int = BLOCK, exact: int = EXACT
) -> dict[str, Any]:
    """The summary of the same run, streamed; `block` of the ledger, `exact` of its sums."""
    work = LazyWorkload(job.settings, job.recording, job.sequences, job.lengths)
    with RunFiles(folder) as files:
        sums = replace(sums_for(job), exact=exact)
        ledger = Ledger(work, files, sums, hold=False, block=block)
        near = serve(job, ledger, fast)
        return finish(job, ledger, capacity=job.settings.server.kv_blocks, near_threshold=near)


def differences(ours: Any, theirs: Any, rel: float = 0.0, path: str = "") -> list[str]:
    """Where two summaries differ by more than the rounding of sums, percentiles by more than `rel`.

    Counts and names may not differ at all.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict):
        both = [
            line
            for key in sorted(ours.keys() & theirs.keys())
            for line in differences(ours[key], theirs[key], rel, f"{path}.{key}")
        ]
        return both + [f"{path}.{key} alone" for key in sorted(ours.keys() ^ theirs.keys())]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [x for i, (a, b) in pairs for x in differences(a, b, rel, f"{path}[{i}]")]
    if isinstance(ours, float) and isinstance(theirs, float):
        percentile = any(word in path for word in ("median", "p90", "p95", "p99"))
        allowed = rel if percentile else 1e-12
        close = math.isclose(ours, theirs, rel_tol=allowed, abs_tol=0 if percentile else 1e-12)
        return [] if close else [f"{path}: {ours} and {theirs}"]
    same = type(ours) is type(theirs) and ours == theirs
    return [] if same else [f"{path}: {ours!r} and {theirs!r}"]


def tables(folder: Path) -> dict[str, Any]:
    """Rows of both tables, requests by number."""
    requests = parquet.read_table(folder / "requests.parquet").sort_by("request")
    return {"requests": requests, "steps": parquet.read_table(folder / "steps.parquet")}
