"""A sweep that is killed and started again ends with the bytes of one that was not.

SWEEP_RUNS=300 makes it the sweep of conf/experiment/sweep_short.yaml, which takes some minutes.
"""

from __future__ import annotations

import os
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from simulator.cli.main import main
from tests.sweeping import ended, launched_by, remains, runs, start, summaries, until

RUNS = int(os.environ.get("SWEEP_RUNS", "20"))
SECONDS = 0.3  # up to which a kill comes after a run has finished


@pytest.fixture(scope="module")
def words(recorded) -> list[str]:
    seeds = RUNS // 10
    short = ["num_prompts=6", "policy=autoregressive,fixed_chain", "max_concurrency=1,2,3,4,8"]
    more = ["experiment=sweep_short"] if RUNS == 300 else [f"seed=range(0,{seeds})", *short]
    return ["-m", f"trace={recorded}", "hydra.sweep.dir=sweep", *more]


@pytest.fixture(scope="module")
def expected(words, tmp_path_factory) -> dict[str, dict[str, bytes]]:
    """The runs of a sweep that nothing disturbs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("whole"))
        assert main(words) == 0
        found = runs(Path("sweep"))
    assert len(found) == RUNS
    return found


def launchers() -> list[list[str]]:
    """One by one, and two at a time where that launcher is installed."""
    there = find_spec("hydra_plugins") and find_spec("hydra_plugins.hydra_joblib_launcher")
    return [launched_by("joblib"), []] if there else [[], []]


def test_killed_and_resumed(here, words, expected):
    random = np.random.default_rng()  # every time another moment, which a failure shows
    moments, sweep = [], here / "sweep"
    for turn, launcher in enumerate(launchers(), 1):
        process = start([*words, *launcher])
        enough = int(random.integers(1, RUNS)) * turn // 2
        until(lambda: summaries(sweep) >= enough, process)  # noqa: B023
        moments.append((summaries(sweep), pause_s := random.uniform(0, SECONDS)))
        time.sleep(pause_s)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    status, printed, err = ended(start(words))
    assert (status, err) == (0, ""), moments
    assert len(printed.splitlines()) == RUNS
    assert printed.count("skipped: ") >= max(done for done, _ in moments) - 2
    assert not remains(sweep), moments
    assert runs(sweep) == expected, moments


def test_two_sweeps_at_once(here, words, expected):
    """Into one folder: what one has finished or is at work on, the other does not do again."""
    for process in [start([*words, *launcher]) for launcher in launchers()]:
        status, printed, err = ended(process)
        assert (status, err) == (0, "")
        assert len(printed.splitlines()) == RUNS
    assert runs(here / "sweep") == expected
    assert not remains(here / "sweep")
