"""One override moves a sweep to other processes: same results, same lines, same ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cli.main import main
from simulator.cli.sweep import pool
from tests.sweeping import (
    ELSEWHERE,
    JOBLIB,
    ended,
    environment,
    launched_by,
    remains,
    runs,
    start,
    summaries,
    until,
)

POLICY = """
import os
import time
import numpy as np
from simulator.orders import ChainOrder
from simulator.policy import Policy

class Stubborn(Policy):
    order = ChainOrder()
    def __init__(self, nodes=1, seconds=0.0):
        self.nodes, self.seconds = nodes, seconds
    def allocate(self, step):
        time.sleep(self.seconds)
        if self.nodes < 0:
            os.kill(os.getpid(), -self.nodes)
        if self.nodes == 0:
            raise ZeroDivisionError("a fault of the policy's")
        return np.full(step.batch, self.nodes)
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory) -> Path:
    """A user's policy and its configuration, for all tests: processes are used again."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "stubborn_policy.py").write_text(POLICY)
    (folder / "conf/policy").mkdir(parents=True)
    (folder / "conf/policy/stubborn.yaml").write_text(
        "name: stubborn\n_target_: stubborn_policy.Stubborn\nnodes: 2\nseconds: 0.0\n"
    )
    return folder


@pytest.fixture
def words(here, recorded, mine, monkeypatch) -> list[str]:
    """A sweep with the user's policy."""
    monkeypatch.syspath_prepend(str(mine))
    monkeypatch.setenv("PYTHONPATH", environment(mine)["PYTHONPATH"])
    more = ["policy=stubborn", "num_prompts=6", "max_concurrency=1", "hydra.sweep.dir=out"]
    return ["-m", "--config-dir", str(mine / "conf"), f"trace={recorded}", *more]


@pytest.mark.parametrize("launcher", ["basic", *ELSEWHERE])
def test_the_same_sweep(here, words, launcher, capfd, monkeypatch):
    sweep = [*words, "policy.nodes=1,2"]
    monkeypatch.setattr(pool, "cores", lambda: 1)
    assert main([*sweep, "hydra.sweep.dir=here"]) == 0
    monkeypatch.setattr(pool, "cores", lambda: 2)
    expected = capfd.readouterr().out.splitlines()
    assert len(expected) == 2
    assert main([*sweep, *launched_by(launcher)]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines() == expected
    assert err == ""
    assert runs(here / "out") == runs(here / "here")
    assert not remains(here / "out")
    # Once more, and one job more: that one alone is run.
    assert main([*words, "policy.nodes=1,2,3", *launched_by(launcher)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.startswith("skipped: out/") for line in lines] == [True, True, False]
    assert "policy.nodes=3" in lines[2]


@pytest.mark.parametrize("launcher", ["basic", *ELSEWHERE])
def test_a_job_that_is_refused_names_itself_and_the_others_go_on(here, words, launcher, capfd):
    sweep = [*words, "policy.nodes=99,1", *launched_by(launcher)]  # 99 is found while it runs
    assert main(sweep) == 2
    out, err = capfd.readouterr()
    assert err.startswith("error: ")
    assert "policy.nodes=99" in err
    assert err.count("\n") == 1
    assert out.count("\n") == 1
    assert [name for name in runs(here / "out") if "policy.nodes=1," in name]
    assert len(runs(here / "out")) == 1  # the other has left no folder


@pytest.mark.parametrize("launcher", ["basic", *ELSEWHERE])
def test_a_fault_of_ours_keeps_its_traceback(here, words, launcher, capfd):
    assert main([*words, "policy.nodes=1,0", *launched_by(launcher)]) == 1
    out, err = capfd.readouterr()
    assert "ZeroDivisionError: a fault of the policy's" in err
    assert "stubborn_policy.py" in err
    assert "policy.nodes=0" in err.splitlines()[-1]
    assert out.count("\n") == 1


@pytest.mark.parametrize("launcher", ["basic", *ELSEWHERE])
def test_interrupted(here, words, launcher):
    """^C on a terminal, which reaches all processes."""
    process = start([*words, "policy.seconds=0,60", *launched_by(launcher)])
    until(lambda: summaries(here / "out") >= 1, process)
    os.killpg(process.pid, signal.SIGINT)
    _is_interrupted(process, here / "out")


@pytest.mark.parametrize("launcher", ["basic", *ELSEWHERE])
def test_only_the_first_process_is_interrupted(here, words, launcher):
    """As by `kill -INT`: it ends the others."""
    process = start([*words, "policy.seconds=60,61", *launched_by(launcher)])
    until(lambda: len(list((here / "out").glob("*/.hydra/.lock"))) == 2, process)
    os.kill(process.pid, signal.SIGINT)
    _is_interrupted(process, here / "out")
    assert not runs(here / "out")


def _is_interrupted(process: subprocess.Popen, sweep: Path) -> None:
    status, _, err = ended(process)
    assert (status, err) == (130, "interrupted\n")
    assert not remains(sweep)
    assert all("seconds=0" in name for name in runs(sweep))  # every folder left is whole


@pytest.mark.parametrize("launcher", ["basic", *ELSEWHERE])
def test_a_process_that_dies_is_reported(words, launcher):
    """As when the system ends it because memory runs out."""
    status, _, err = ended(start([*words, "policy.nodes=1,-9", *launched_by(launcher)]))
    assert status == 1
    assert "policy.nodes=-9" in err
    assert all(line.startswith("error: ") and "no answer" in line for line in err.splitlines())


@JOBLIB
def test_the_reader_of_the_lines_may_leave(here, words):
    read, write = os.pipe()
    os.close(read)
    process = start([*words, "policy.nodes=1,2", *launched_by("joblib")], stdout=write)
    os.close(write)
    status, _, err = ended(process)
    assert (status, err) == (0, "")
    assert not remains(here / "out")


THREE_CORES = (
    "import sys; from simulator.cli.sweep import pool; pool.cores = lambda: 3; "
    "from simulator.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


def test_lines_come_in_the_order_of_the_jobs(here, words):
    """The first job ends last; and where a process dies, the others' jobs are done by another.

    In a process of its own: with PyTorch loaded so few jobs stay in the process, and die with it.
    """

    def swept(*more: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", THREE_CORES, *words, *more]
        return subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)

    found = swept("policy.nodes=1,-9,2", "policy.seconds=0.05,0")
    assert found.returncode == 1
    shown = re.findall(r"policy.nodes=(\S+) policy.seconds=(\S+): .* tokens/s", found.stdout)
    assert shown == [("1", "0.05"), ("1", "0"), ("2", "0.05"), ("2", "0")]
    lost = re.findall(r"policy.nodes=(\S+) policy.seconds=(\S+): no answer", found.stderr)
    assert lost == [("-9", "0.05"), ("-9", "0")]
    again = swept("policy.nodes=1,2", "policy.seconds=0.05,0")
    assert (again.returncode, again.stdout.count("skipped: ")) == (0, 4)
    assert not remains(here / "out")


def test_a_launcher_that_is_not_installed(here, recorded, capsys):
    assert main(["-m", f"trace={recorded}", "hydra/launcher=nope"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: hydra/launcher is 'nope'; accepted: basic")
    assert "pip install" in err
    assert list(here.iterdir()) == []
