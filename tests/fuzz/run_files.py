"""Good files of finished runs, by hand: two policies at one load, and what is read beside them."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import yaml
from pyarrow import parquet

from tests.figure_cases import summary
from traces.recordings.catalog import DATA

CALIBRATION = "small_block_t0.calibration.json"
ROUNDS = """batch,width,round_ms,committed,tree,drafted
1,0,12.5,1,0,0
1,4,14.0,3,1,1
4,4,18.0,9,0,1
4,0,13.5,4,0,0
8,2,21.0,15,true,true
8,0,15.0,8,false,false
16,1,22.5,24,0,1
2,7,16.0,5,1,1
"""
POINTS = {
    "format": "specdec-points",
    "version": 1,
    "importer": "vllm-result",
    "source": "a test",
    "files": [{"name": "x.json", "sha256": "0" * 64}],
    "lacks": ["engine settings"],
    "points": [
        {
            "label": "x",
            "file": "x.json",
            "policy": None,
            "model": "some-8b",
            "max_concurrency": 3,
            "request_rate": "inf",
            "burstiness": 1.0,
            "facts": {"completed": 10, "date": "2026"},
            "metrics": {"output_throughput": 400.0, "median_tpot_ms": 16.0},
        }
    ],
}
REQUESTS = {
    "request": list(range(8)),
    "sequence": [0, 1, 2, 0, 1, 2, 0, 1],
    "arrival_s": [0.0, 0.0, 0.0, 0.9, 1.1, 1.3, 2.0, 2.2],
    "first_token_s": [np.nan, 0.1, 0.1, 1.0, 1.2, 1.4, 2.1, 2.3],
    "finish_s": [0.9, 1.1, 1.3, 2.0, 2.2, 2.6, 3.1, 3.3],
    "output_tokens": [20, 20, 24, 20, 20, 24, 20, 20],
    "measured": [False, True, True, True, True, True, True, True],
    "window_tokens": [4, 8, 10, 20, 20, 22, 0, 0],
}
STEPS = {
    "time_s": [0.1 * at for at in range(30)],
    "step_s": [0.1] * 30,
    "draft_s": [0.02] * 30,
    "verify_s": [0.07] * 30,
    "batch": [3] * 25 + [2, 2, 1, 1, 1],
    "draft_nodes": [12, 9, 0] * 10,
    "drafted": [True, True, False] * 10,
    "committed": [7, 6, 3] * 10,
    "source": ["measured"] * 30,
}
BATCHES = [
    {
        "batch": batch,
        "bounds": {
            name: {"output_throughput": rate}
            for name, rate in zip(("plain", "o2", "o3", "o5", "o5_free"), (60, 300, 500, 350, 550))
        },
    }
    for batch in (1, 3)
]
CONFIG = {
    "policy": {"name": "chain", "_target_": "simulator.policies.fixed_chain.FixedChain"},
    "server": {"replicas": 1, "prefill": "whole", "max_num_seqs": None},
    "seed": 0,
    "request_rate": float("inf"),
    "goodput": None,
}


def _summary(policy: str, throughput: float) -> dict[str, Any]:
    tokens = sum(REQUESTS["window_tokens"])
    window = {"kind": "full batch", "start_s": 1.0, "end_s": 1 + tokens / throughput}
    changes = {"max_concurrency": 3, "window": window, "server": {"max_num_seqs": 256}}
    return summary(policy, throughput, **changes)


@cache
def files_of_runs() -> dict[str, bytes]:
    """Two policies at one load, and bounds of the same recording."""
    files = {"o/bounds.json": _bounds()}
    for run, throughput in (("a", 120.0), ("b", 80.0)):
        files[f"{run}/summary.json"] = json.dumps(_summary(f"chain_{run}", throughput)).encode()
        files[f"{run}/.hydra/config.yaml"] = yaml.safe_dump(CONFIG | {"seed": 1}).encode()
        for name, columns in (("requests", REQUESTS), ("steps", STEPS)):
            file = io.BytesIO()
            parquet.write_table(pyarrow.table(columns), file)
            files[f"{run}/{name}.parquet"] = file.getvalue()
    return files


def _bounds() -> bytes:
    run = _summary("x", 1.0)
    head = {"format": "specdec-bounds", "version": 1, "order": {"nodes": 7}, "batches": BATCHES}
    return json.dumps(head | {key: run[key] for key in ("trace", "latency")}).encode()


def make_runs(folder: Path) -> None:
    for name, data in files_of_runs().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def make_points(folder: Path) -> None:
    make_runs(folder)
    (folder / "points.json").write_text(json.dumps(POINTS))


def make_validation(folder: Path) -> None:
    from tests.test_validation_report import usual

    (folder / "validation.json").write_text(json.dumps(usual()))


def make_calibration(folder: Path) -> None:
    (folder / CALIBRATION).write_bytes((DATA / CALIBRATION).read_bytes())
