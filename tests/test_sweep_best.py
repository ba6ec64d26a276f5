"""A sweep with an objective finds the best run, over a grid or led by Optuna."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from simulator.cli.main import main
from simulator.cli.sweep.objective import NAMES
from tests.sweeping import RESULTS, installed
from tests.test_refusals import refused

OPTUNA = installed("hydra_optuna_sweeper")


@pytest.fixture
def words(here, recorded) -> list[str]:
    """A short search."""
    load = ["num_prompts=24", "max_concurrency=4", "goodput='tpot:4'", "hydra.sweep.dir=out"]
    return [f"trace.recording={recorded}", *load]


def values(sweep: Path, name: str) -> dict[str, float]:
    paths = sweep.glob("*/summary.json")
    return {path.parent.name: json.loads(path.read_text())[name] for path in paths}


def best_line(out: str) -> str:
    line = out.splitlines()[-1]
    assert line.startswith("best: ")
    return line


def test_a_grid(here, words, capsys):
    grid = ["experiment=tune_threshold", "policy.threshold=0,0.5,0.9", *words]
    skipped = 0
    for name, best in (("request_goodput", max), ("mean_tpot_ms", min), ("acceptance_length", max)):
        assert main([*grid, f"objective={name}"]) == 0
        lines = capsys.readouterr().out.splitlines()
        found = values(here / "out", name)
        assert len(found) == len(set(found.values())) == 3
        folder = best(found, key=found.get)
        threshold = folder.partition("policy.threshold=")[2].partition(",")[0]
        assert f"policy.threshold={threshold} " in best_line(lines[-1])
        assert lines[-1].endswith(f"{name} {found[folder]:.6g}")
        # The same runs are there for another objective.
        assert sum(line.startswith("skipped: ") for line in lines) == skipped
        skipped = 3
    assert main([*grid, "objective=null"]) == 0
    assert "best" not in capsys.readouterr().out


@OPTUNA
def test_optuna_is_told_the_objective(here, words, capsys):
    search = ["experiment=tune_threshold_optuna", *words]
    assert main([*search, "hydra.sweeper.n_trials=3"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = values(here / "out", "request_goodput")
    assert len(found) == 3
    told = OmegaConf.load(here / "out/optimization_results.yaml")
    assert told.best_value == max(found.values())
    best = f"policy.threshold={told.best_params['policy.threshold']}"
    assert best in best_line(out)
    before = {p: p.stat().st_mtime_ns for p in (here / "out").glob("*/*") if p.name in RESULTS}
    # Started again, as after a kill: the same trials, found where they lie, and then new ones.
    assert main([*search, "hydra.sweeper.n_trials=5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("skipped: ") for line in lines) == 3
    assert len(values(here / "out", "request_goodput")) == 5
    assert all(path.stat().st_mtime_ns == before[path] for path in before)


@OPTUNA
def test_a_trial_that_is_refused_is_one_line(here, words, capsys):
    search = ["experiment=tune_threshold_optuna", *words, "hydra.sweeper.n_trials=2"]
    assert main([*search, "policy.threshold=interval(1.5,2.0)"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: policy.threshold=1.")
    assert err.count("\n") == 1
    # Some of them may fail.
    more = ["policy.threshold=choice(2.0,0.5)", "hydra.sweeper.max_failure_rate=1.0"]
    assert main([*search, *more, "hydra.sweeper.n_trials=4"]) == 2
    out, err = capsys.readouterr()
    assert "policy.threshold=0.5" in best_line(out)
    assert all(line.startswith("error: policy.threshold=2.0") for line in err.splitlines())


@OPTUNA
def test_a_search_needs_an_objective(here, recorded, capsys):
    refused(["-m", "hydra/sweeper=optuna", f"trace={recorded}"], capsys, "objective is null")


def test_a_run_without_the_number_is_refused_and_kept(here, recorded, capsys):
    """Of a single request there is nothing to measure."""
    words = ["-m", "seed=0,1", "policy=autoregressive", "num_prompts=1", f"trace={recorded}"]
    more = ["max_concurrency=1", "objective=mean_tpot_ms", "hydra.sweep.dir=out"]
    assert main([*words, *more]) == 2
    out, err = capsys.readouterr()
    assert all("raise num_prompts" in line for line in err.splitlines())
    assert err.count("\n") == 2
    assert "best" not in out
    assert len(values(here / "out", "mean_tpot_ms")) == 2


def test_every_objective_is_a_key_of_a_summary(here, recorded):
    assert main([f"trace={recorded}", "max_concurrency=2", "hydra.run.dir=out"]) == 0
    summary = json.loads((here / "out/summary.json").read_text())
    assert set(NAMES) <= set(summary)
