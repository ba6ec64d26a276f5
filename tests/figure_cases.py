"""Runs written by hand for the tests of figures and reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow
from pyarrow import parquet

MEASURED = {"measured": 1.0, "interpolated": 0.0, "modelled": 0.0, "clamped": 0.0}
CURVE = {"1": 1.5, "3": 2.0, "7": 2.5}


def summary(policy: str, throughput: float = 100.0, **changes) -> dict:
    """A finished run's summary with everything that figures look for."""
    data = {
        "format": "specdec-summary",
        "version": 1,
        "policy": policy,
        "policy_config": {},
        "policy_fit": {},
        "trace": {"recording": "small", "content_hash": "ab" * 32, "domains": ["code", "chat"]},
        "latency": {"profile": "card_a", "kind": "measured", "num_gpus": 2, "source": "our probe"},
        "server": {"replicas": 1, "prefill": "whole", "mixed": False},
        "workload": "recorded texts",
        "what_if": False,
        "what_if_reason": None,
        "max_concurrency": 4,
        "request_rate": "inf",
        "burstiness": 1.0,
        "seed": 0,
        "num_prompts": 8,
        "completed": 8,
        "config_hash": "cd" * 32,
        "window": {"kind": "full batch", "start_s": 0.0, "end_s": 10.0, "requests": 500},
        "output_throughput": throughput,
        "output_throughput_per_gpu": throughput / 2,
        "request_throughput": 4.0,
        "request_goodput": 3.0,
        "goodput": {"tpot": 50.0},
        "realised_request_rate": None,
        "percentiles": "exact",
        "percentile_error": 0.0,
        "rejected": 0,
        "preemptions": 0,
        "mean_tpot_ms": 10.0,
        "median_tpot_ms": 20.0,
        "p99_tpot_ms": 30.0,
        "ttft_note": "queue and prefill",
        "prefill_ms_total": 0.0,
        "acceptance_length": 2.5,
        "draft_nodes_per_request": 7.0,
        "share_verified_accepted": 0.2,
        "padding_share": 0.25,
        "step_ms": {"draft": 1.0, "verify": 8.0, "host": 0.5, "prefill": 0.0, "total": 9.5},
        "by_domain": {"code": {"mean_tpot_ms": 8.0}, "chat": {"mean_tpot_ms": 12.0}},
        "cost_shares": {"steps": MEASURED, "time": MEASURED},
        "acceptance_length_by_budget": CURVE,
    }
    return data | changes


def steps(batch: Sequence[int], nodes: Sequence[int], **columns: Sequence) -> dict[str, list]:
    """Columns of steps of a tenth of a second each."""
    times = {"time_s": [0.1 * at for at in range(len(batch))], "step_s": [0.1] * len(batch)}
    return {"batch": list(batch), "draft_nodes": list(nodes)} | times | columns


def write_run(
    folder: Path, data: Mapping, rows: Mapping[str, Sequence] | None = None, config: str = ""
) -> Path:
    """Write one run into a folder of its own below `folder`; returns that one."""
    run = folder / f"run{len(list(folder.glob('*')))}"
    run.mkdir(parents=True)
    (run / "summary.json").write_text(json.dumps(data))
    if rows is not None:
        parquet.write_table(pyarrow.table(dict(rows)), run / "steps.parquet")
    if config:
        (run / ".hydra").mkdir()
        (run / ".hydra" / "config.yaml").write_text(config)
    return run


def sweep(folder: Path, policies: Sequence[str], loads: Sequence[int], seeds: int = 1) -> Path:
    """Every policy at every load and seed, each as fast as its place in the list."""
    for at, policy in enumerate(policies):
        for load in loads:
            for seed in range(seeds):
                data = summary(policy, 100.0 * (at + 1) * load**0.7 + seed)
                data |= {"max_concurrency": load, "seed": seed, "median_tpot_ms": 5.0 + at + load}
                data["p99_tpot_ms"] = 2 * data["median_tpot_ms"]
                data["by_domain"] = {
                    name: {"mean_tpot_ms": 10.0 * scale / (at + 1) + 0.1 * seed}
                    for name, scale in (("code", 1.0), ("chat", 1.5))
                }
                count = 0 if policy == "autoregressive" else load * (at + 1)
                write_run(folder, data, steps([load] * 25, [count] * 25))
    return folder


def comparison(folder: Path, baseline: str = "autoregressive"):
    """The one setting below a folder."""
    from analysis.compare.comparison import compare
    from analysis.read.runs import read_runs

    (found,) = compare(read_runs([folder]), baseline)
    return found
