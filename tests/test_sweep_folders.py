"""Run folders: one process at a time, never parts of two runs, nothing left of killed processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from simulator.cli.main import main
from simulator.cli.sweep.lock import Busy, claimed
from tests.sweeping import COMPOSED, RESULTS, ended, environment, remains, runs, start

HOLDER = """
import sys, time
from pathlib import Path
from simulator.cli.sweep.lock import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""
TURNS = """
import sys
import threading
from pathlib import Path
from simulator.cli.sweep.lock import claimed
count = Path("count")
for _ in range(20):
    with claimed(Path(sys.argv[1])):
        before = int(count.read_text()) if count.exists() else 0
        count.write_text(str(before + 1))
"""
GONE = 2**22 + 1  # above the largest process id of Linux


@pytest.fixture
def holder(here):
    """Another process that holds the folder `run`."""
    command = [sys.executable, "-c", HOLDER, "run"]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_folder_is_held_until_its_process_ends(here, holder):
    folder = here / "run"
    with pytest.raises(Busy), claimed(folder, wait=False):
        pass
    holder.kill()  # the system lets go of its lock
    with claimed(folder):
        assert [path.name for path in (folder / ".hydra").iterdir()] == [".lock"]
    assert list(folder.iterdir()) == []


def test_many_take_turns(here):
    """A lock that its holder removes is no lock for who waited for it."""
    command = [sys.executable, "-c", TURNS, "run"]
    processes = [subprocess.Popen(command, env=environment()) for _ in range(4)]
    assert [process.wait(timeout=60) for process in processes] == [0] * 4
    assert Path("count").read_text() == "80"
    assert list(Path("run").iterdir()) == []


def test_who_waits_comes_next(here, holder):
    words = ["policy=autoregressive", "num_prompts=2", "hydra.run.dir=run"]
    waiting = threading.Thread(target=main, args=(words,))
    waiting.start()
    waiting.join(timeout=0.5)
    assert waiting.is_alive()
    assert not (here / "run/summary.json").exists()
    holder.send_signal(signal.SIGTERM)
    waiting.join(timeout=60)
    assert (here / "run/summary.json").exists()
    assert not remains(here)


def test_only_files_of_processes_that_are_gone_are_cleared(here):
    (here / "run/.hydra").mkdir(parents=True)
    own = f".requests.parquet.{os.getpid()}.tmp"  # of one that had our number
    gone = {f".steps.parquet.{GONE}.tmp", own}
    kept = {f".summary.json.{os.getppid()}.tmp", ".notes.tmp"}  # of a process, of the user
    for name in gone | kept:
        (here / "run" / name).touch()
    with claimed(here / "run"):
        pass
    assert {path.name for path in (here / "run").iterdir()} == kept


@pytest.fixture
def words(here, recorded) -> list[str]:
    return [f"trace={recorded}", "policy=fixed_chain", "num_prompts=5", "hydra.run.dir=run"]


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (*RESULTS, *COMPOSED)}


def test_a_run_killed_while_it_replaced_another_is_run_again(here, words, capsys):
    assert main([*words, "seed=1"]) == 0
    first = content(here / "run")
    assert main([*words, "seed=2"]) == 0
    second = content(here / "run")
    assert all(first[name] != second[name] for name in first)
    # As if that had been killed after its first table: the rest is still the first run's.
    for name in set(first) - {"requests.parquet"}:
        (here / "run" / name).write_bytes(first[name])
    (here / "run/.hydra/.replacing").touch()
    assert main([*words, "seed=1"]) == 0
    assert content(here / "run") == first
    assert not remains(here)
    assert "skipped" not in capsys.readouterr().out


def test_a_failed_run_leaves_the_earlier_one_whole(here, words, monkeypatch, capsys):
    assert main([*words, "seed=1"]) == 0
    before = content(here / "run")
    monkeypatch.setattr("simulator.engine.run._serve", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main([*words, "seed=2"])
    assert content(here / "run") == before
    assert not remains(here)
    assert main([*words, "seed=1"]) == 0
    assert "skipped" in capsys.readouterr().out


def test_the_configuration_that_lies_there_is_the_results(here, recorded):
    """Two sweeps whose jobs have the same names, and other settings behind them, at once."""
    for name, length in (("a", 2), ("b", 5)):
        (here / name / "policy").mkdir(parents=True)
        (here / name / "policy/mine.yaml").write_text(
            f"name: mine\n_target_: simulator.policies.fixed_chain.FixedChain\nlength: {length}\n"
        )
    more = [f"trace={recorded}", "policy=mine", "num_prompts=5", "seed=range(0,4)"]
    words = {name: ["-m", "--config-dir", name, *more] for name in "ab"}
    for name in "ab":
        assert main([*words[name], f"hydra.sweep.dir=of_{name}"]) == 0
    processes = [start([*words[name], "hydra.sweep.dir=both"]) for name in "ab"]
    assert [ended(process)[0] for process in processes] == [0, 0]
    of_a, of_b, both = runs(here / "of_a"), runs(here / "of_b"), runs(here / "both")
    assert of_a.keys() == of_b.keys() == both.keys()
    assert all(both[name] in (of_a[name], of_b[name]) for name in both)
    assert not remains(here / "both")
    # And the other configuration's again, in the same process.
    assert main([*words["a"], "hydra.sweep.dir=both"]) == 0
    assert runs(here / "both") == of_a


def test_killed_before_the_first_result(here, recorded):
    """A sweep that finds nothing but what a killed process left makes the folders anew."""
    words = ["-m", f"trace={recorded}", "policy=autoregressive", "num_prompts=4", "seed=0,1"]
    assert main([*words, "hydra.sweep.dir=other"]) == 0
    for run in (here / "other").glob("*/.hydra"):
        left = here / "out" / run.parent.name
        (left / ".hydra").mkdir(parents=True)
        (left / ".hydra/.lock").touch()
        (left / f".steps.parquet.{GONE}.tmp").touch()
    assert main([*words, "hydra.sweep.dir=out"]) == 0
    assert runs(here / "out") == runs(here / "other")
    assert not remains(here / "out")


def test_where_the_configuration_lies(here, recorded):
    words = [f"trace={recorded}", "policy=autoregressive", "num_prompts=3", "seed=4"]
    assert main([*words, "hydra.run.dir=run", "hydra.output_subdir=kept"]) == 0
    kept = here / "run/kept"
    assert OmegaConf.load(kept / "config.yaml").seed == 4
    assert OmegaConf.load(kept / "overrides.yaml") == [f"trace.recording={recorded}", *words[1:]]
    hydra = OmegaConf.load(kept / "hydra.yaml").hydra
    assert (hydra.mode, hydra.runtime.output_dir) == ("RUN", str(here / "run"))
    assert (hydra.runtime.choices.policy, hydra.overrides.task[-1]) == ("autoregressive", "seed=4")
    assert main([*words, "hydra.run.dir=none", "hydra.output_subdir=null"]) == 0
    assert {path.name for path in (here / "none").iterdir()} == set(RESULTS)


def test_hydras_own_settings_of_a_job(here, recorded, monkeypatch):
    monkeypatch.delenv("SPECSIM_TOLD", raising=False)
    words = ["policy=autoregressive", "num_prompts=3", "hydra.job.chdir=true", f"trace={recorded}"]
    seen = []
    monkeypatch.setattr(
        "simulator.studies.perform",
        lambda *_: seen.append((os.getcwd(), os.environ.get("SPECSIM_TOLD"))),
    )
    assert main([*words, "+hydra.job.env_set.SPECSIM_TOLD=yes", "hydra.run.dir=run"]) == 0
    assert seen == [(str(here / "run"), "yes")]
    assert os.getcwd() == str(here)
    assert "SPECSIM_TOLD" not in os.environ
