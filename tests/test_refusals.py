"""What the command line refuses: exit status 2, one line, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cli.errors import one_line
from simulator.cli.main import main
from simulator.engine import run as run_module
from traces.common.errors import InputError

ROOT = Path(__file__).parents[1]
POLICIES = sorted(path.stem for path in (ROOT / "conf" / "policy").glob("*.yaml"))

REFUSED = {
    "policy=nope": f"accepted: {', '.join(POLICIES)}\n",
    "+policy=nope": f"accepted: {', '.join(POLICIES)}\n",
    "policy=null": "Config group",
    "trace=nope": "accepted: small_block",
    "trace=nope.safetensors": "nope.safetensors: no such recording",
    "trace=broken.safetensors": "broken.safetensors: not a complete safetensors file",
    "latency=nope": "b300",
    "latency=nope.csv": "nope.csv: no such file",
    "latency=broken.csv": "broken.yaml: cannot read",
    "server=nope": "accepted: default",
    "experiment=nope": "concurrency_sweep",
    "nope=1": "unknown key nope; accepted: policy, trace",
    "+nope=1": "unknown key nope; accepted: policy, trace",
    "max_concurency=4": "max_concurrency",
    "trace.nope=1": "accepted: trace.recording",
    "+trace.nope=1": "accepted: trace.recording",
    "+server.nope=1": "accepted: server.max_num_seqs",
    "policy.nope=1": "unknown key policy.nope",
    "+policy.nope=1": "accepted: policy.width",
    "+latency.nope=1": "latency.nope",
    "hydra.run.nope=1": "--cfg hydra",
    "~policy": "policy is missing",
    "max_concurrency=many": "max_concurrency is 'many'",
    "max_concurrency=null": "max_concurrency is None",
    "request_rate=0": "request_rate is 0",
    "goodput=tpot": "goodput is 'tpot'",
    "trace.split=nope": "unknown split 'nope'",
    "trace.domains=[nope]": "unknown domain 'nope'",
    "task=nope": "accepted: run, rtable, ",
    "policy._target_=nope.Nope": "policy._target_ 'nope.Nope'",
    "policy._target_=builtins.dict": "accepted: a subclass of Policy",
    "policy.width=wide": "policy.width is 'wide'",
    "seed=${nope}": "nope",
    "max_concurrency={": "max_concurrency={: not KEY=VALUE",
    "policy": "policy: not KEY=VALUE",
    "--nope": "unrecognized arguments: --nope",
    "--config-dir=nope": "--config-dir is 'nope'",
}


def refused(words: list[str], capsys, says: str) -> None:
    """Exit status 2, one line on stderr, nothing on stdout and nothing new on disk."""
    before = set(Path.cwd().rglob("*"))
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert says in err
    assert set(Path.cwd().rglob("*")) == before


@pytest.mark.parametrize("word", REFUSED)
def test_refusals(here, recorded, capsys, word):
    (here / "broken.safetensors").write_text("not tensors")
    (here / "broken.csv").write_text("not a profile")
    words = [word] if word.lstrip("+").startswith("trace=") else [f"trace={recorded}", word]
    refused(words, capsys, REFUSED[word])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["policy=autoregressive,nope"], "policy is 'nope'"),
        (["policy=autoregressive", "max_concurrency=1,0"], "max_concurrency is 0"),
        (["policy=fixed_chain", "policy.length=2,8"], "policy.length is 8; accepted: 1 to 7"),
        (["experiment=concurrency_sweep", "max_concurrency=-1"], "max_concurrency is -1"),
        (["seed=interval(0,3)"], "seed is interval(0,3); accepted: values"),
    ],
)
def test_a_sweep_is_checked_before_its_first_job(here, recorded, capsys, words, says):
    refused(["-m", f"trace={recorded}", *words], capsys, says)


def test_errors_of_ours_keep_their_traceback():
    assert one_line(InputError("a\n  b")) == "a b"
    assert one_line(KeyError("x")) is None
    assert one_line(ZeroDivisionError()) is None


def test_interrupted_run_leaves_nothing(here, recorded, capsys, monkeypatch):
    def interrupted(job, ledger, on_finish=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "_serve", interrupted)
    assert main([f"trace={recorded}"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert list(here.iterdir()) == []


def test_a_failure_while_writing_leaves_no_half_files(here, recorded, monkeypatch):
    def full(path, schema):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half a table")
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.results.files._writer", full)
    assert main([f"trace={recorded}", "hydra.run.dir=out"]) == 130
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("word", "line"),
    [
        (
            "max_concurrency=0",
            "max_concurrency is 0; accepted: a whole number from 1 to 100000, or null",
        ),
        (
            "policy._target_=no_module.X",
            "policy._target_ 'no_module.X': No module named 'no_module'",
        ),
    ],
)
def test_module_exits_with_status_2_and_one_line(here, recorded, word, line):
    done = subprocess.run(
        [sys.executable, "-m", "simulator", f"trace={recorded}", word],
        cwd=here,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {line}\n"
    assert list(here.iterdir()) == []
