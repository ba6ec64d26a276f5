"""Runs written by hand for the tests of tables, figures and reports, and what comes of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow
from pyarrow import parquet

MEASURED = {"measured": 1.0, "interpolated": 0.0, "modelled": 0.0, "clamped": 0.0}
CURVE = {"1": 1.5, "3": 2.0, "7": 2.5}
A, B = "3fa9c1d2" + "0" * 56, "77" * 32  # hashes


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
        "mean_ttft_ms": 12.0,
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


def changed(name: str, **changes) -> dict:
    """A node of a summary with some keys changed."""
    return {name: summary("cast")[name] | changes}


def steps(batch: Sequence[int], nodes: Sequence[int], **columns: Sequence) -> dict[str, list]:
    """Columns of steps of a tenth of a second each."""
    times = {"time_s": [0.1 * at for at in range(len(batch))], "step_s": [0.1] * len(batch)}
    return {"batch": list(batch), "draft_nodes": list(nodes)} | times | columns


def write_table(run: Path, name: str, **columns: Sequence) -> None:
    """A table beside a run's summary."""
    parquet.write_table(pyarrow.table(columns), run / f"{name}.parquet")


def write_run(
    folder: Path, data: Mapping, rows: Mapping[str, Sequence] | None = None, config: str = ""
) -> Path:
    """Write one run into a folder of its own below `folder`; returns that one."""
    run = folder / f"run{len(list(folder.glob('*')))}"
    run.mkdir(parents=True)
    (run / "summary.json").write_text(json.dumps(data))
    if rows is not None:
        write_table(run, "steps", **rows)
    if config:
        (run / ".hydra").mkdir()
        (run / ".hydra" / "config.yaml").write_text(config)
    return run


def write_runs(folder: Path, *runs: Mapping) -> Path:
    """Each summary in a folder of its own below `folder`, which is returned."""
    for run in runs:
        write_run(folder, run)
    return folder


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


def comparisons(folder: Path, baseline: str = "autoregressive") -> list:
    """One for each setting below a folder."""
    from analysis.compare.comparison import compare
    from analysis.read.runs import read_runs

    return compare(read_runs([folder]), baseline)


def comparison(folder: Path):
    """The one setting below a folder."""
    (found,) = comparisons(folder)
    return found


def drawn(folder: Path, name: str) -> list:
    """The drawings of one kind that the runs allow; InputError where there is none."""
    from analysis.figures.draw import draw, read_inputs

    return draw(read_inputs([folder]), [name], strict=True)


def named(axes) -> dict:
    """The lines of policies by label, as they were drawn."""
    return {one.get_label(): one for one in axes.get_lines() if one.get_label()[0] != "_"}


def printed(capsys, *words: object) -> str:
    """What a command prints."""
    from analysis.__main__ import main

    capsys.readouterr()
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def rows_of(capsys, *words: object) -> list[dict]:
    """The records of a command's CSV."""
    return list(csv.DictReader(io.StringIO(printed(capsys, *words, "--format", "csv"))))


def refused(capsys, *words: object) -> str:
    """The one error line of a refused command, which prints nothing else."""
    from analysis.__main__ import main

    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[:7]) == ("", 1, "error: ")
    return err
