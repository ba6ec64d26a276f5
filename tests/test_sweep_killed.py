"""A sweep that is killed and started again ends with the bytes of one that was not.

SWEEP_RUNS=300 makes it the sweep of conf/experiment/sweep_short.yaml, which takes some minutes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.sweeping import ended, environment, launched_by, remains, runs, start, summaries, until

KILLS = 3
RUNS = int(os.environ.get("SWEEP_RUNS", "20"))
SECONDS = 0.3  # up to which a kill comes after a run has finished


@pytest.fixture
def words(recorded) -> list[str]:
    seeds = RUNS // 10
    short = ["num_prompts=6", "policy=autoregressive,fixed_chain", "max_concurrency=1,2,3,4,8"]
    more = ["experiment=sweep_short"] if RUNS == 300 else [f"seed=range(0,{seeds})", *short]
    return ["-m", f"trace={recorded}", "hydra.sweep.dir=sweep", *more]


def analysed(folder: Path, form: str) -> str:
    command = [sys.executable, "-m", "analysis", "sweep", "--format", form, "--no-figures"]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, check=True
    ).stdout


def launchers() -> list[list[str]]:
    """One by one, and two at a time where that launcher is installed."""
    there = find_spec("hydra_plugins") and find_spec("hydra_plugins.hydra_joblib_launcher")
    return [[], launched_by("joblib")] if there else [[]]


def test_killed_and_resumed(here, words):
    whole, killed = here / "whole", here / "killed"
    whole.mkdir()
    killed.mkdir()
    assert ended(start(words, cwd=whole))[0] == 0
    random = np.random.default_rng()  # every time another moment, which a failure shows
    moments, launcher = [], launchers()
    for turn in range(KILLS):
        process = start([*words, *launcher[turn % len(launcher)]], cwd=killed)
        enough = int(random.integers(1, RUNS)) * (turn + 1) // KILLS
        until(lambda: summaries(killed / "sweep") >= enough, process)  # noqa: B023
        moments.append((summaries(killed / "sweep"), pause_s := random.uniform(0, SECONDS)))
        time.sleep(pause_s)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    status, printed, err = ended(start(words, cwd=killed))
    assert (status, err) == (0, ""), moments
    assert len(printed.splitlines()) == RUNS
    assert printed.count("skipped: ") >= max(done for done, _ in moments) - KILLS
    assert not remains(killed / "sweep"), moments
    expected = runs(whole / "sweep")
    assert len(expected) == RUNS
    assert runs(killed / "sweep") == expected, moments
    for form in ("markdown", "csv"):
        assert analysed(killed, form) == analysed(whole, form) != ""


def test_two_sweeps_at_once(here, words):
    """Into one folder: what one has finished or is at work on, the other does not do again."""
    both, alone = here / "both", here / "alone"
    both.mkdir()
    alone.mkdir()
    processes = [start(words, cwd=both), start([*words, *launchers()[-1]], cwd=both)]
    assert ended(start(words, cwd=alone))[0] == 0
    for process in processes:
        status, printed, err = ended(process)
        assert (status, err) == (0, "")
        assert len(printed.splitlines()) == RUNS
    assert runs(both / "sweep") == runs(alone / "sweep")
    assert not remains(both / "sweep")
