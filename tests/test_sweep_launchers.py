"""One override moves a sweep to other processes: same results, same lines, same ends."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from simulator.cli.main import main
from simulator.cli.sweep import pool
from tests.sweeping import (
    ELSEWHERE,
    JOBLIB,
    PATIENCE_S,
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

EVERYWHERE = pytest.mark.parametrize("launcher", ["basic", *ELSEWHERE])


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


@EVERYWHERE
def test_the_same_sweep(here, words, launcher, capfd, monkeypatch):
    """Of which one run is there already."""
    monkeypatch.setattr(pool, "cores", lambda: 1)
    assert main([*words, "policy.nodes=1"]) == 0
    capfd.readouterr()
    assert main([*words, "policy.nodes=1,2,3", "hydra.sweep.dir=here"]) == 0
    expected = capfd.readouterr().out.splitlines()
    monkeypatch.setattr(pool, "cores", lambda: 2)
    assert main([*words, "policy.nodes=1,2,3", *launched_by(launcher)]) == 0
    out, err = capfd.readouterr()
    skipped, *lines = out.splitlines()
    assert skipped.startswith("skipped: out/")
    assert lines == expected[1:]
    assert len(lines) == 2
    assert err == ""
    assert runs(here / "out") == runs(here / "here")
    assert not remains(here / "out")


@EVERYWHERE
def test_failures_name_themselves_and_the_others_go_on(here, words, launcher, capfd):
    """A job that is refused while it runs has a line, a fault of ours its traceback."""
    assert main([*words, "policy.nodes=99,0,1", *launched_by(launcher)]) == 1
    out, err = capfd.readouterr()
    assert out.count("\n") == 1
    refused, *traceback, fault = err.splitlines()
    assert refused.startswith("error: ")
    assert "policy.nodes=99" in refused
    assert "ZeroDivisionError: a fault of the policy's" in traceback
    assert "stubborn_policy.py" in err
    assert "policy.nodes=0" in fault
    (name,) = runs(here / "out")  # the others have left no folder
    assert "policy.nodes=1," in name


@EVERYWHERE
@pytest.mark.parametrize("all_of_them", [True, False])
def test_interrupted(here, words, launcher, all_of_them):
    """^C on a terminal reaches all processes; `kill -INT` the first, which ends the others."""
    process = start([*words, "policy.seconds=0,60,61", *launched_by(launcher)])
    until(lambda: summaries(here / "out") and len(at_work(here / "out")) == 2, process)
    (os.killpg if all_of_them else os.kill)(process.pid, signal.SIGINT)
    status, _, err = ended(process)
    assert (status, err) == (130, "interrupted\n")
    assert not remains(here / "out")
    assert all("seconds=0" in name for name in runs(here / "out"))  # every folder left is whole


def at_work(sweep: Path) -> list[Path]:
    return list(sweep.glob("*/.hydra/.lock"))


@pytest.mark.parametrize("launcher", ELSEWHERE)
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


def test_lines_come_in_the_order_of_the_jobs(here, words, capfd):
    """The first job ends last; and where a process dies, the others' jobs are done by another.

    In a process of its own: with PyTorch loaded so few jobs stay in the process, and die with it.
    """
    command = [sys.executable, "-c", THREE_CORES, *words, "policy.seconds=0.05,0"]
    nodes = "policy.nodes=1,-9,2"
    found = subprocess.run([*command, nodes], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    shown = re.findall(r"policy.seconds=(\S+) policy.nodes=(\S+): .* tokens/s", found.stdout)
    assert shown == [("0.05", "1"), ("0.05", "2"), ("0", "1"), ("0", "2")]
    lost = re.findall(r"policy.seconds=(\S+) policy.nodes=(\S+): no answer", found.stderr)
    assert lost == [("0.05", "-9"), ("0", "-9")]
    assert main([*words, "policy.seconds=0.05,0", "policy.nodes=1,2"]) == 0
    assert capfd.readouterr().out.count("skipped: ") == 4
    assert not remains(here / "out")


# ---------------------------------------------------------------- progress

CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
LINE = re.compile(r"runs( \(\d+ skipped\))? [^\n]*?(\d+)/(\d+) (-:--:--|\d+:\d\d:\d\d) left")


def on_terminal(words: list[str]) -> tuple[int, str, str]:
    """Status, stdout (which is a file) and what a terminal as stderr got."""
    main, side = pty.openpty()
    process = start(words, stderr=side, env=environment() | {"TERM": "xterm", "COLUMNS": "150"})
    os.close(side)
    shown: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(main, 4096):
                shown.append(piece)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    out, _ = process.communicate(timeout=PATIENCE_S)
    reader.join()
    os.close(main)
    text = CODES.sub("", b"".join(shown).decode()).replace("\r", "\n")
    return process.returncode, out, text


@pytest.fixture
def at_once(here, monkeypatch):
    """Bars show themselves at once: whether a sweep takes a second depends on the machine."""
    Path("sitecustomize.py").write_text(
        "import simulator.progress\nsimulator.progress.PATIENCE_S = -1\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(here), prepend=os.pathsep)


@pytest.mark.parametrize("launcher", ["basic", pytest.param("joblib", marks=JOBLIB)])
@pytest.mark.usefixtures("at_once")
def test_progress_on_a_terminal(recorded, launcher):
    """The bar counts what is to be done; of a sweep that goes on, what is new."""
    words = ["-m", f"trace={recorded}", "num_prompts=30", "hydra.sweep.dir=out"]
    words.append("policy=autoregressive,fixed_tree")
    assert main([*words, "seed=0"]) == 0
    words = [*words, *launched_by(launcher)]
    status, out, shown = on_terminal([*words, "seed=range(0,4)"])
    assert status == 0
    lines = out.splitlines()  # of runs, and nothing of the bar
    assert len(lines) == 8
    assert sum(line.startswith("skipped: ") for line in lines) == 2
    assert sum("tokens/s" in line for line in lines) == 6
    found = [match for match in LINE.finditer(shown) if match[1] == " (2 skipped)"]
    assert {match[3] for match in found} == {"6"}
    assert any(match[4] != "-:--:--" for match in found)  # an estimate
    assert re.search(r"8 runs: 6 new, 2 skipped, in [\d.]+ s; results in out\n", shown)
