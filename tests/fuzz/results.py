"""Results of runs, as `python -m analysis` reads them: summaries, tables, bounds, points."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from analysis.__main__ import main
from analysis.compare.comparison import compare
from analysis.read.calibrations import read_reliability
from analysis.read.runs import SOURCES, read_runs
from analysis.read.tables import read_steps, steps_in_window
from analysis.read.validations import read_validation
from analysis.report.page import read_configs
from simulator.calibration.file import read_calibration
from simulator.results.files import is_complete
from tests.fuzz.cases import Target, command, of_file
from tests.fuzz.run_files import (
    CALIBRATION,
    ROUNDS,
    make_calibration,
    make_points,
    make_runs,
    make_validation,
)
from traces.common.errors import InputError


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def _compare(folder: Path) -> tuple[Any, str]:
    words = ("--no-figures", "--format", "csv")
    return read_runs([folder]), command(main, folder / "a", folder / "b", *words)


def _check_compared(folder: Path, found: tuple[Any, str], good: tuple[Any, str]) -> None:
    runs, text = found
    for data in runs["data"]:
        assert data["completed"] == data["num_prompts"] > 0
        assert all(
            0 <= share <= 1 + 1e-9
            for share in (data["cost_shares"]["time"][name] for name in SOURCES)
        )
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
    assert 0 < float(row["ratio"]) < math.inf
    if row["ratio_low"]:  # one prompt has no interval
        assert float(row["ratio_low"]) <= float(row["ratio_high"])
    for run in ("a", "b"):
        table = parquet.read_table(folder / run / "requests.parquet")
        if "request" in table.column_names:
            assert sorted(table["request"].to_pylist()) == list(range(table.num_rows))
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
    """No number of the table is infinite or undefined; texts are free."""
    texts = {name for row in _rows(good) for name, cell in row.items() if not _is_number(cell)}
    for row in _rows(found):
        for name, cell in row.items():
            odd = (cell or "").strip().lower() in ("nan", "inf", "-inf")
            assert not odd or name in texts | {"request_rate"}, name


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell or 0))
    except ValueError:
        return False


def _steps(folder: Path) -> Any:
    (run,) = read_runs([folder / "a"]).itertuples()
    steps = read_steps(run.path, "batch", "draft_nodes", "time_s", "step_s")
    return steps, steps_in_window(run.path, run.data)


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
    return [read_configs(one) for one in compare(read_runs([folder]))]


def _check_reliability(folder: Path, found: Any, good: Any) -> None:
    for level, curves in found.curves.items():
        for curve in curves.values():
            assert 0 <= curve.ece <= 1
            for bins in (curve.bins, curve.log_bins):
                assert bins["count"].sum() == found.count[level]
                assert bins[["share", "mean"]].stack().between(0, 1).all()


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
    for cell in found.cells.itertuples():
        error = cell.output_throughput_predicted / cell.output_throughput - 1
        assert math.isclose(error, cell.output_throughput_error, rel_tol=2e-3, abs_tol=2e-3)


def _kept(folder: Path) -> None:
    if not is_complete(folder / "a", "cd" * 32):
        raise InputError("done again")


def _check_kept(folder: Path, found: Any, good: Any) -> None:
    """A run is done again unless its summary says whose it is and both tables have their ends."""
    assert json.loads((folder / "a/summary.json").read_text())["config_hash"] == "cd" * 32
    for name in ("requests", "steps"):
        assert (folder / "a" / f"{name}.parquet").read_bytes().endswith(b"PAR1")


def _nothing(folder: Path, found: Any, good: Any) -> None:
    """What is read is only shown."""


def _make_rounds(folder: Path) -> None:
    (folder / "rounds.csv").write_text(ROUNDS)


_reliability = of_file(read_reliability, CALIBRATION)
_calibration = of_file(read_calibration, CALIBRATION)
_validation = of_file(read_validation, "validation.json")
_ALL, _SUMMARY, _STEPS = ("*",), ("a/summary.json",), ("a/steps.parquet",)
TARGETS = [
    Target("compare", make_runs, _SUMMARY, _compare, _check_compared),
    Target("paired", make_runs, (*_SUMMARY, "*/requests.parquet"), _paired, _check_paired),
    Target("reach", make_runs, ("o/bounds.json", *_SUMMARY), _reach, _check_numbers),
    Target("points", make_points, ("points.json",), _points, _check_numbers),
    Target("steps", make_runs, _STEPS, _steps, _check_steps),
    Target("cost of a run", make_runs, _STEPS, _cost("run"), _check_cost),
    Target("cost of rounds", _make_rounds, _ALL, _cost("rounds"), _check_cost),
    Target("configurations", make_runs, ("a/.hydra/config.yaml",), _configs, _nothing),
    Target("reliability", make_calibration, _ALL, _reliability, _check_reliability),
    Target("calibration", make_calibration, _ALL, _calibration, _check_calibration),
    Target("validation", make_validation, _ALL, _validation, _check_validation),
    Target("kept results", make_runs, (*_SUMMARY, "a/*.parquet"), _kept, _check_kept),
]
