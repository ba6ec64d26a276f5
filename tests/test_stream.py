"""A streamed run: the results of the same run held in memory, in memory that does not grow."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from pyarrow import parquet

import simulator.engine.run
from simulator.engine.arrivals import LazyWorkload, arrival_times, make_workload
from simulator.engine.compiled.server import FastServer
from simulator.engine.fleet import Fleet
from simulator.engine.run import Job, load, prepare, run_job
from simulator.results.files import RunFiles
from simulator.results.ledger import BLOCK, Ledger
from simulator.results.quantiles import ERROR, EXACT
from simulator.results.summary import finish, sums_for
from simulator.results.sums import Sums
from tests.composing import composed_jobs
from tests.synthetic import make_pool
from traces.recordings.files import write_recording

LOADS = {
    "closed": ["policy=cast", "max_concurrency=16", "goodput=ttft:5 tpot:3", "num_prompts=3000"],
    "one client": ["policy=fixed_chain", "policy.length=3", "max_concurrency=1"],
    "never full": ["policy=treespark", "max_concurrency=400"],
    "open": ["policy=cast", "request_rate=400", "max_concurrency=32", "goodput=e2el:40"],
    "plain": ["policy=autoregressive", "max_concurrency=64"],
    "prefill": ["policy=cast", "max_concurrency=9", "latency=small_pair_semi_cpu"],
    "replicas": ["policy=cast", "max_concurrency=24", "server.replicas=3", "server.lag=1"],
    "scarce": [
        "policy=fixed_tree", "max_concurrency=12", "server=vllm", "server.kv_tokens=60",
        "server.kv_block=4", "latency=small_pair_semi_cpu", "goodput=ttft:1",
    ],
    "chunks between steps": [
        "policy=cast", "request_rate=90", "max_concurrency=12", "server.prefill=chunked",
        "server.max_num_batched_tokens=12", "latency=small_pair_semi_cpu", "server.replicas=2",
        "server.router=least_loaded", "server.scheduling=shortest_first",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return tiny_recording(tmp_path_factory.mktemp("recording"))


def tiny_recording(folder: Path, **options) -> Path:
    """A file of short texts in two domains."""
    path = folder / "tiny.safetensors"
    options = {"sequences": 24, "depths": 8, "max_new_tokens": 12} | options
    recording = make_pool(np.random.default_rng(5), **options)
    write_recording(path, recording.meta, recording.arrays)
    return path


def make_job(path: Path, *words: str) -> Job:
    """A prepared job on the recording in `path`."""
    (config,) = composed_jobs([f"trace.recording={path}", *words])
    return prepare(load(config))


def serve(job: Job, ledger: Ledger, fast: bool) -> int:
    """Serve the ledger's workload; returns how many decisions were near a threshold."""
    capacity, times = job.settings.capacity, arrival_times(job.settings, ledger.workload)
    parts = (job.policy, job.recording, job.cost, ledger.workload, capacity, job.tables, ledger)
    if fast:
        FastServer(*parts, arrival_s=times).run()
        return job.policy.near_threshold
    fleet = Fleet(simpy.Environment(), *parts, job.settings.server, following=job.following)
    fleet.run()
    return fleet.near_threshold


def summary(job: Job, folder: Path, hold=False, fast=False, block=BLOCK, exact=EXACT) -> dict:
    """Of a run that is held or streamed; `block` of the ledger, `exact` of a stream's sums."""
    make = make_workload if hold else LazyWorkload
    workload = make(job.settings, job.recording, job.sequences, job.lengths)
    sums = sums_for(job, None if hold else exact)
    with RunFiles(folder) as files:
        ledger = Ledger(workload, files, sums, hold=hold, block=block)
        near = serve(job, ledger, fast)
        return finish(job, ledger, near_threshold=near)


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


def both(recording, tmp_path, words, **options) -> tuple[dict, dict]:
    words = ["num_prompts=400", *words]
    held = summary(make_job(recording, *words), tmp_path / "held", hold=True)
    return held, summary(make_job(recording, *words), tmp_path / "flat", **options)


def tables(folder: Path) -> dict[str, Any]:
    """Rows of both tables, requests by number."""
    requests = parquet.read_table(folder / "requests.parquet").sort_by("request")
    return {"requests": requests, "steps": parquet.read_table(folder / "steps.parquet")}


def check_rows(tmp_path) -> dict[str, Any]:
    ours, theirs = tables(tmp_path / "held"), tables(tmp_path / "flat")
    for table in ("requests", "steps"):
        assert ours[table].schema == theirs[table].schema
        for name in ours[table].column_names:
            a, b = (each[table][name].to_numpy() for each in (ours, theirs))
            assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), name
    return theirs


@pytest.mark.parametrize("name", LOADS)
def test_a_streamed_run_has_the_results_of_a_held_one(recording, tmp_path, name):
    """Small blocks, so that the window's ends lie in the middle of some and far from others."""
    held, flat = both(recording, tmp_path, LOADS[name], block=1 << 7)
    assert differences(held, flat) == []
    assert json.loads((tmp_path / "flat" / "summary.json").read_text()) == flat
    check_rows(tmp_path)
    ended = parquet.read_table(tmp_path / "flat" / "requests.parquet").to_pandas()["finish_s"]
    assert ended.dropna().is_monotonic_increasing  # requests stand in the order they end


@pytest.mark.parametrize("clients", [1, 5, 16])
@pytest.mark.parametrize("hold", [False, True])
def test_bulk_calls_are_the_single_ones(recording, tmp_path, clients, hold):
    """Compiled rounds tell the ledger of 65,536 at once, the ordinary server of one step."""
    words = ["policy=cast", f"max_concurrency={clients}", "latency=small_pair_semi_cpu"]
    held, flat = both(recording, tmp_path, words, hold=hold, fast=True)
    assert differences(held, flat) == []
    check_rows(tmp_path)


def test_texts_of_a_file_go_on_in_other_sequences(recording, tmp_path):
    """Outputs of up to 40 tokens on texts of up to 12; prompts too long for the cache are refused.

    A request of p prompt and o output tokens needs ceil((p + o - 1) / 4) of 20 blocks: none can be
    longer than 81 tokens.
    """
    rng = np.random.default_rng(3)
    prompts, outputs = rng.integers(1, 70, 500), rng.integers(1, 41, 500)
    rows = [f"{p},{o}" for p, o in zip(prompts, outputs, strict=True)]
    path = tmp_path / "traffic.csv"
    path.write_text("prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    words = [
        "policy=fixed_chain", "policy.length=2", "request_rate=50", "max_concurrency=8",
        "workload=file", f"workload.path={path}", "server.kv_tokens=80", "server.kv_block=4",
        "latency=small_pair_semi_cpu", "num_prompts=500",
    ]  # fmt: skip
    held, flat = both(recording, tmp_path, words, block=1 << 7)
    assert differences(held, flat) == []
    rows = check_rows(tmp_path)["requests"].to_pydict()
    assert flat["rejected"] == sum(rows["rejected"]) > 0
    assert flat["completed"] == 500 - flat["rejected"]
    refused = np.array(rows["rejected"])
    assert refused.tolist() == (prompts + outputs > 81).tolist()
    assert np.isnan(np.array(rows["finish_s"])).tolist() == refused.tolist()
    assert rows["output_tokens"] == np.where(refused, 0, outputs).tolist()
    assert rows["prompt_tokens"] == prompts.tolist()
    # a text of n outputs hands over where the request wants more than n
    assert flat["hand_overs"] == sum(rows["hand_overs"]) > 0
    assert flat["hand_over_share"] == np.mean(np.array(rows["hand_overs"]) > 0)
    assert flat["preemptions"] == sum(rows["preemptions"])


def test_runs_of_one_token_requests_have_no_steps(tmp_path):
    """Prefill is all there is; the last ones end when the first ones do, without it."""
    path = tiny_recording(tmp_path, sequences=9, lengths=[1] * 9)
    for latency in ("b300", "small_pair_semi_cpu"):
        words = ["policy=autoregressive", f"latency={latency}"]
        held, flat = both(path, tmp_path, [*words, "max_concurrency=4"], block=1 << 5)
        assert differences(held, flat) == []
        assert check_rows(tmp_path)["steps"].num_rows == 0


def test_sampled_drafts_have_the_same_error_bound(tmp_path):
    path = tiny_recording(tmp_path, temperature=1.0)
    held, flat = both(path, tmp_path, ["policy=treespark", "max_concurrency=4"], block=1 << 7)
    assert held["sampled_error_bound"] is not None
    assert differences(held, flat) == []


@pytest.mark.parametrize("name", ["closed", "scarce"])
def test_sketched_percentiles_are_within_their_error(recording, tmp_path, name):
    held, flat = both(recording, tmp_path, LOADS[name], block=1 << 7, exact=50)
    assert (held.pop("percentiles"), flat.pop("percentiles")) == ("exact", "sketch")
    assert (held.pop("percentile_error"), flat.pop("percentile_error")) == (0.0, ERROR)
    assert differences(held, flat, rel=ERROR) == []
    assert differences(held, flat) != []  # some of them are sketched


def test_long_runs_are_streamed_and_short_ones_are_not(recording, tmp_path, monkeypatch):
    words = ["policy=cast", "max_concurrency=6", "num_prompts=400"]
    short = run_job(make_job(recording, *words), tmp_path / "held")
    monkeypatch.setattr(simulator.engine.run, "STREAM_FROM", 399)
    assert differences(short, run_job(make_job(recording, *words), tmp_path / "flat")) == []
    check_rows(tmp_path)
    names = {"requests.parquet", "steps.parquet", "summary.json"}
    assert {path.name for path in (tmp_path / "flat").iterdir()} == names


def test_an_interrupted_run_leaves_no_file_and_keeps_earlier_ones(recording, tmp_path, monkeypatch):
    monkeypatch.setattr(simulator.engine.run, "STREAM_FROM", 99)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "summary.json").write_text("{}")

    def stop(finished: int) -> None:
        if finished > 150:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(make_job(recording, "policy=cast", "num_prompts=200"), folder, stop)
    assert [path.name for path in folder.iterdir()] == ["summary.json"]
    assert json.loads((folder / "summary.json").read_text()) == {}


def test_a_run_that_contradicts_itself_writes_nothing(recording, tmp_path):
    job = make_job(recording, "policy=cast", "num_prompts=200", "max_concurrency=4")
    with RunFiles(tmp_path / "run", group=16) as files:
        workload = LazyWorkload(job.settings, job.recording, job.sequences)
        ledger = Ledger(workload, files, sums_for(job), hold=False, block=1 << 7)
        serve(job, ledger, fast=False)
        ledger.accounts.rounds += 1
        with pytest.raises(AssertionError, match="rounds .*, the sum of the steps' batches"):
            finish(job, ledger)
        assert len(list((tmp_path / "run").iterdir())) == 2
    assert list((tmp_path / "run").iterdir()) == []


# ---------------------------------------------------------------- memory


TOGETHER = 256


def feed(count: int, folder) -> tuple[int, int]:
    """Peak of memory, and rounds, of `count` requests of 1 to 59 rounds, 256 at a time.

    They start together, step by step, and end together.
    """
    together, work = TOGETHER, _Endless(count)
    tracemalloc.start()
    with RunFiles(folder, group=1 << 12) as files:
        ledger = Ledger(work, files, Sums(("one",), exact=1 << 12), hold=False, block=1 << 13)
        now_s, total = 0.0, 0
        for first in range(0, count, together):
            ledger.workload.block(first, together)
            rounds = 1 + first // together * 7 % 59
            now_s = _cohort(ledger, first, together, rounds, now_s)
            total += rounds * together
        sums = ledger.close()
        ledger.accounts.check()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sums.completed == count
    return peak, total


def _cohort(ledger, first: int, together: int, rounds: int, now_s: float) -> float:
    requests = np.arange(first, first + together)
    time_s = now_s + np.arange(rounds + 1) / 1024
    for name in ("arrival_s", "admitted_s", "first_token_s"):
        ledger.times(name, requests, np.full(together, now_s))
    whole, second, none = np.full(rounds, together), np.full(rounds, 1 / 1024), np.zeros(rounds)
    ones = np.ones(rounds * together, np.int64)
    ledger.block(
        {
            "time_s": time_s[:-1],
            "verify_s": second,
            "batch": whole,
            "source": whole // whole,
            "drafted": whole > 0,
            **dict.fromkeys(("draft_s", "host_s"), none),
            **dict.fromkeys(("queued", "order_ties"), 0 * whole),
        },
        {
            "request": np.tile(requests, rounds),
            "anchor": np.repeat(np.arange(rounds), together),
            "width": 3 * ones,
            "accepted": 0 * ones,
            "committed": ones,
        },
    )
    ledger.times("finish_s", requests, np.full(together, time_s[-1]))
    return float(time_s[-1])


class _Endless(LazyWorkload):
    """Requests of `feed`, made when they are asked for."""

    ramp = 0

    def __init__(self, count: int) -> None:
        self._size, self.clients = count, TOGETHER

    def __len__(self) -> int:
        return self._size

    def block(self, first: int, count: int):
        requests = np.arange(first, first + count)
        return {
            "sequence": requests % 100,
            "domain": 0 * requests,
            "prompt_tokens": 5 + 0 * requests,
            "output_tokens": 2 + first // TOGETHER * 7 % 59 + 0 * requests,
            "warmup": requests < 0,
        }


def test_memory_does_not_grow_with_the_number_of_requests(tmp_path):
    feed(10 * TOGETHER, tmp_path / "first")  # what is loaded once
    small, rounds = feed(60 * TOGETHER, tmp_path / "small")
    large, more = feed(420 * TOGETHER, tmp_path / "large")
    assert more > 6 * rounds
    assert large - small < 10 * 360 * TOGETHER  # bytes: 10 for each request more
