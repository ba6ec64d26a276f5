"""Results of runs, as `python -m analysis` reads them: summaries, tables, bounds, points."""

from __future__ import annotations

import csv
import io
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import yaml
from pyarrow import parquet

from analysis.__main__ import main
from analysis.compare import compare
from analysis.configs import read_configs
from analysis.reliability import read_reliability
from analysis.steps import read_steps, steps_in_window
from analysis.summaries import read_summaries
from analysis.validation import read_validation
from simulator.calibration_file import read_calibration
from simulator.tournament.store import NAME as STORE
from simulator.tournament.store import Store
from tests.figure_cases import summary
from tests.fuzz.cases import Target, command
from tests.fuzz.grids import csv_damaged
from tests.fuzz.tables import parquet_damaged
from tests.fuzz.trees import json_damaged, yaml_damaged
from traces.catalog import DATA

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
RESULT = {
    "tokens_s": 100.0,
    "modelled": 0.0,
    "clamped": 0.1,
    "nodes_per_request": 4.0,
    "requests": 3,
    "prompts": [1, 2],
    "tokens": [10.0, 20.0],
    "seconds": [0.1, 0.2],
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
    window = {"kind": "full batch", "start_s": 0.8, "end_s": 2.2, "requests": 6}
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


def _make(folder: Path, *names: str) -> None:
    for name, data in files_of_runs().items():
        if not names or name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def _make_points(folder: Path) -> None:
    _make(folder)
    (folder / "points.json").write_text(json.dumps(POINTS))


def _make_validation(folder: Path) -> None:
    from tests.test_validation_report import usual

    (folder / "validation.json").write_text(json.dumps(usual()))


def _make_calibration(folder: Path) -> None:
    name = "small_block_t0.calibration.json"
    (folder / name).write_bytes((DATA / name).read_bytes())


def _make_store(folder: Path) -> None:
    lines = [{"key": key, "policy": "cast", "result": RESULT} for key in ("a", "b")]
    lines.append({"key": "c", "policy": "cast", "result": {"refused": "no such depth"}})
    (folder / STORE).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def _compare(folder: Path) -> tuple[list, str]:
    words = ("--no-figures", "--format", "csv")
    return read_summaries([folder]), command(main, folder / "a", folder / "b", *words)


def _check_compared(folder: Path, found: tuple[list, str], good: tuple[list, str]) -> None:
    summaries, text = found
    for one in summaries:
        data = one.data
        assert data["completed"] == data["num_prompts"] > 0
        assert all(0 <= share <= 1 + 1e-9 for share in one.cost_shares.values())
        assert data["share_verified_accepted"] is None or 0 <= data["share_verified_accepted"] <= 1
        assert 0 <= data["output_throughput"] < math.inf
        times = (data["median_tpot_ms"], data["p99_tpot_ms"])
        assert None in times or times[0] <= times[1] * (1 + 1e-9)
    assert len(_rows(text)) == len(_rows(good[1]))


def _paired(folder: Path) -> str:
    words = ("--resamples", "100", "--format", "csv")
    return command(main, "paired", folder / "a", folder / "b", *words)


def _check_paired(folder: Path, found: str, good: str) -> None:
    (row,) = _rows(found)
    low, ratio, high = (float(row[key]) for key in ("ratio_low", "ratio", "ratio_high"))
    assert 0 < ratio < math.inf
    assert low <= high
    for run in ("a", "b"):
        table = parquet.read_table(folder / run / "requests.parquet")
        summary = json.loads((folder / run / "summary.json").read_text())
        assert table.num_rows == summary["num_prompts"]
        columns = {
            name: table[name].to_pylist()
            for name in ("sequence", "arrival_s", "finish_s", "output_tokens", "window_tokens")
        }
        for sequence, arrival, finish, output, inside_window in zip(*columns.values()):
            assert sequence >= 0
            assert 0 <= arrival <= finish < math.inf
            assert 0 <= inside_window <= output
            assert output >= 1


def _reach(folder: Path) -> str:
    words = ("--bounds", folder / "o" / "bounds.json", "--format", "csv")
    return command(main, "reach", folder / "a", folder / "b", *words)


def _points(folder: Path) -> str:
    words = ("--points", folder / "points.json", "--format", "csv")
    return command(main, "points", folder / "a", folder / "b", *words)


def _check_numbers(folder: Path, found: str, good: str) -> None:
    """No cell of the table is infinite or undefined."""
    for row in _rows(found):
        for name, cell in row.items():
            odd = (cell or "").strip().lower() in ("nan", "inf", "-inf")
            assert not odd or name == "request_rate", name


def _steps(folder: Path) -> Any:
    (run,) = read_summaries([folder / "a"])
    return read_steps(run, "batch", "draft_nodes", "time_s", "step_s"), steps_in_window(run)


def _check_steps(folder: Path, found: Any, good: Any) -> None:
    steps, inside_window = found
    if steps is None:
        return
    assert (steps["batch"] >= 0).all()
    assert (steps["draft_nodes"] >= 0).all()
    assert np.isfinite(steps["time_s"]).all()
    assert 0 <= inside_window <= len(steps["batch"])


def _cost(source: str):
    def read(folder: Path) -> str:
        path = folder / "a" if source == "run" else folder / "rounds.csv"
        return command(main, "cost", path, "--profile", "b300", "--out", folder / "out.yaml")

    return read


def _check_cost(folder: Path, found: str, good: str) -> None:
    text = (folder / "out.yaml").read_text()
    assert "nan" not in text.split("provenance")[0]
    assert ".inf" not in text


def _configs(folder: Path) -> Any:
    return [read_configs(one) for one in compare(read_summaries([folder]))]


def _check_reliability(folder: Path, found: Any, good: Any) -> None:
    for level, curves in found.curves.items():
        for curve in curves.values():
            assert 0 <= curve.ece <= 1
            for bins in (curve.bins, curve.log_bins):
                assert sum(one.count for one in bins) == found.count[level]
                assert all(0 <= one.share <= 1 and 0 <= one.mean <= 1 for one in bins)


def _check_calibration(folder: Path, found: Any, good: Any) -> None:
    """Probabilities in, probabilities out, and the likelier stays so."""
    q = np.linspace(1e-6, 1 - 1e-6, 101)
    survival = found.path(q)
    assert ((survival >= 0) & (survival <= 1)).all()
    assert (np.diff(survival) >= 0).all()
    assert np.isfinite([found.platt.a, found.platt.b, found.edge_map.a, found.edge_map.rank]).all()
    assert found.platt.a > 0
    assert found.edge_map.a > 0


def _check_validation(folder: Path, found: Any, good: Any) -> None:
    for cell in found.cells:
        error = cell.predicted / cell.throughput - 1
        assert math.isclose(error, cell.error["output_throughput"], rel_tol=2e-3, abs_tol=2e-3)


def _store(folder: Path) -> Any:
    store = Store(folder)
    return {key: store[key] for key in ("a", "b", "c") if key in store}


def _check_store(folder: Path, found: Any, good: Any) -> None:
    for result in found.values():
        if not isinstance(result, str):
            assert 0 <= result.tokens_s < math.inf
            assert len(result.prompts) == len(result.tokens) == len(result.seconds)


def _nothing(folder: Path, found: Any, good: Any) -> None:
    """What is read is only shown."""


_SUMMARY = {"a/summary.json": json_damaged}
_REQUESTS = {"*/requests.parquet": parquet_damaged}
_CALIBRATION = "small_block_t0.calibration.json"
TARGETS = [
    Target("compare", _make, _SUMMARY, _compare, _check_compared),
    Target("paired", _make, _SUMMARY | _REQUESTS, _paired, _check_paired),
    Target("reach", _make, {"o/bounds.json": json_damaged} | _SUMMARY, _reach, _check_numbers),
    Target("points", _make_points, {"points.json": json_damaged}, _points, _check_numbers),
    Target("steps", _make, {"a/steps.parquet": parquet_damaged}, _steps, _check_steps),
    Target("cost of a run", _make, {"a/steps.parquet": parquet_damaged}, _cost("run"), _check_cost),
    Target(
        "cost of rounds",
        lambda folder: (folder / "rounds.csv").write_text(ROUNDS),
        {"*.csv": csv_damaged},
        _cost("rounds"),
        _check_cost,
    ),
    Target("configurations", _make, {"a/.hydra/config.yaml": yaml_damaged}, _configs, _nothing),
    Target(
        "reliability",
        _make_calibration,
        {"*.json": json_damaged},
        lambda folder: read_reliability(folder / _CALIBRATION),
        _check_reliability,
    ),
    Target(
        "calibration",
        _make_calibration,
        {"*.json": json_damaged},
        lambda folder: read_calibration(folder / _CALIBRATION),
        _check_calibration,
    ),
    Target(
        "validation",
        _make_validation,
        {"*.json": json_damaged},
        lambda folder: read_validation(folder / "validation.json"),
        _check_validation,
    ),
    Target("tournament store", _make_store, {STORE: json_damaged}, _store, _check_store),
]
