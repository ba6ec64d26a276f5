"""Policies on a shipped recording take no less time than the bounds say, step by step."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from simulator.engine.inputs import load_recording
from simulator.engine.run import load, prepare, simulate
from simulator.results.window import find_window
from simulator.studies.bounds import task as bounds_task
from simulator.studies.bounds.lone import (
    BoundedTexts,
    best_schedule,
    free_options,
    least_left,
    order_options,
    pool_prefix,
    table_prefix,
)
from simulator.studies.options import read_option
from tests.bounds_cases import all_texts, assert_steps_cover, least_per_step
from tests.test_bounds_batch import bound_of
from traces.recordings.catalog import known_recordings

RECORDING = "small_semi_t0"
pytestmark = pytest.mark.skipif(RECORDING not in known_recordings(), reason="not shipped")


POLICIES = ("treespark", "cast", "fixed_chain", "tuned_chain")


def config(policy: str = "cast", **changes) -> dict:
    return {
        "policy": read_option("policy", policy, "test"),
        "trace": {"recording": RECORDING, "split": "report", "domains": None},
        "latency": {"profile": "b300"},
        "server": {"max_num_seqs": 256},
        **changes,
    }


@cache
def pool() -> np.ndarray:
    recording = load_recording({"recording": RECORDING})
    return pool_prefix(recording, all_texts(recording).anchors, 8)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lone_request_is_no_faster_than_o2_and_o3(policy):
    """O2 of the policy's own order; O3 of the pool, which holds the children of all of them."""
    job = prepare(load(config(policy, max_concurrency=1, num_prompts=70)))
    facts, texts = simulate(job), all_texts(job.recording)
    table = job.tables(job.policy.order)
    assert (table_prefix(table, texts.anchors) <= pool()).all()
    free = free_options(pool(), table.depths, table.max_nodes, texts, job.cost)
    every = np.ones(len(facts.steps["step"]), bool)
    for options in (order_options(table, texts, job.cost), free):
        assert_steps_cover(facts, job.recording, least_left(options), every)
        least = dict(zip(texts.sequences.tolist(), best_schedule(options).seconds.tolist()))
        for sequence, seconds in decoded(facts):
            assert seconds >= least[sequence] * (1 - 1e-9)


def decoded(facts) -> list[tuple[int, float]]:
    """(sequence, seconds) of every request that starts at the beginning of its text."""
    step_s = facts.steps["step_s"][facts.rounds["step"]]
    seconds = np.bincount(facts.rounds["request"], step_s)
    whole = np.flatnonzero(~facts.requests["warmup"])
    return [(int(facts.requests["sequence"][i]), float(seconds[i])) for i in whole]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_batch_of_16_is_no_faster_than_o5(policy):
    job = prepare(load(config(policy, max_concurrency=16, num_prompts=96)))
    facts, texts = simulate(job), all_texts(job.recording)
    table = job.tables(job.policy.order)
    found = bound_of(table, texts, job.cost, 16)
    full = facts.steps["batch"] == 16
    left = least_left(found.schedule.options)
    assert_steps_cover(facts, job.recording, left, full)
    # The same of the window's throughput: seconds per token, for the very tokens of the window.
    window = find_window(facts)
    inside = window.steps(facts)
    least_s = least_per_step(facts, job.recording, left)[inside].sum()
    tokens = facts.steps["committed"][inside].sum()
    assert least_s / tokens <= window.seconds / tokens


def test_report_is_in_order_and_identifies_its_runs():
    """Throughputs of one recording: plain < O1 <= O2 <= O3, each below its batched floor."""
    node = {"nodes": 31, "batches": [16, 1]}
    result = bounds_task.report(bounds_task.load(config(bounds=node)))
    json.dumps(result, allow_nan=False)
    alone, batch = (
        {name: one["output_throughput"] for name, one in entry["bounds"].items()}
        for entry in result["batches"]
    )
    assert [entry["batch"] for entry in result["batches"]] == [1, 16]
    assert alone["plain"] < alone["o1_ratio"] <= alone["o2"] <= alone["o3"]
    assert alone["plain"] < alone["o1_price"] <= alone["o2"] <= alone["o5"] <= alone["o5_free"]
    assert set(batch) == {"plain", "o5", "o5_free"}
    assert batch["plain"] < batch["o5"] < batch["o5_free"]
    # Plain decoding on b300: 5.109 ms for a step of one token, whatever the context.
    recording = load_recording({"recording": RECORDING})
    texts = BoundedTexts.of(recording, recording.sequences_of("report"))
    assert alone["plain"] == pytest.approx(texts.tokens.sum() / (len(texts.anchors) * 5.109e-3))
    assert result["tokens"] == texts.tokens.sum()
    assert result["trace"]["content_hash"] == recording.content_hash
    assert result["what_if"]
    for entry in result["batches"]:
        assert entry["step_time_from"] == ["clamped"]  # b300 was taken at 8,192 tokens of context
