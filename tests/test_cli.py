"""The command line: what it accepts, what it writes, and how it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

from simulator import run as run_module
from simulator.app import folder_name, main
from simulator.command_line import normalised
from simulator.command_line import parse as parse_command
from simulator.one_line import one_line
from tests.synthetic import make_pool
from traces import write_recording
from traces.errors import InputError

ROOT = Path(__file__).parents[1]
POLICY_FILE = """
import numpy as np
from simulator.orders import ChainOrder
from simulator.policy import Policy

class Stubborn(Policy):
    order = ChainOrder()
    def __init__(self, nodes=1):
        self.nodes = nodes
    def allocate(self, step):
        return np.full(step.batch, self.nodes)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> str:
    """A small pool recording on disk."""
    recording = make_pool(
        np.random.default_rng(0), sequences=9, depths=7, lengths=[20] * 9, noise=0.3
    )
    path = tmp_path_factory.mktemp("recording") / "tiny.safetensors"
    write_recording(path, recording.meta, recording.arrays)
    return str(path)


@pytest.fixture
def here(tmp_path, monkeypatch, tmp_path_factory) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path_factory.getbasetemp() / "orders"))
    return tmp_path


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def summary_in(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


# ------------------------------------------------------------------------------------- accepted


@pytest.mark.parametrize("spelling", ["policy=fixed_chain", "+policy=fixed_chain"])
def test_one_run(here, recorded, capsys, spelling):
    words = [spelling, "policy.length=3", f"trace={recorded}", "max_concurrency=2"]
    assert main([*words, "goodput=ttft:500 tpot:50", "hydra.run.dir=out"]) == 0
    assert files(here / "out") == {
        "summary.json",
        "requests.parquet",
        "steps.parquet",
        ".hydra/config.yaml",
        ".hydra/hydra.yaml",
        ".hydra/overrides.yaml",
    }
    summary = summary_in(here / "out")
    assert summary["policy"] == "fixed_chain"
    assert summary["completed"] == summary["num_prompts"] == 64
    assert summary["draft_nodes_per_request"] == 3
    assert summary["what_if"] is True
    assert 0 <= summary["request_goodput"] <= summary["request_throughput"]
    lengths = summary["acceptance_length_by_budget"]
    assert list(lengths) == sorted(lengths)
    assert lengths["1"] <= lengths["3"] <= lengths["7"]  # nested, so more nodes accept no less
    printed = capsys.readouterr().out
    assert "output throughput" in printed
    assert "what-if" in printed


def test_tables_agree_with_the_summary(here, recorded):
    assert main([f"trace={recorded}", "max_concurrency=2", "hydra.run.dir=out"]) == 0
    summary = summary_in(here / "out")
    steps = parquet.read_table(here / "out/steps.parquet").to_pydict()
    requests = parquet.read_table(here / "out/requests.parquet").to_pydict()
    assert len(requests["request"]) == 64
    assert sum(requests["warmup"]) == 2
    assert sum(requests["draft_nodes"]) == sum(steps["draft_nodes"])
    times = zip(requests["finish_s"], requests["first_token_s"], requests["output_tokens"])
    tpot_ms = [
        1e3 * (end - first) / (tokens - 1)
        for (end, first, tokens), measured in zip(times, requests["measured"])
        if measured
    ]
    assert np.mean(tpot_ms) == pytest.approx(summary["mean_tpot_ms"], rel=1e-12)
    window = summary["window"]
    committed = [
        tokens
        for tokens, start, step_s in zip(steps["committed"], steps["time_s"], steps["step_s"])
        if window["start_s"] <= start and start + step_s <= window["end_s"]
    ]
    assert sum(committed) + window["first_tokens"] == window["tokens"]
    assert set(steps["source"]) <= {"measured", "interpolated", "modelled", "clamped"}


def test_a_seed_gives_the_same_bytes_and_another_does_not(here, recorded):
    words = [f"trace={recorded}", "max_concurrency=3", "request_rate=200", "burstiness=0.5"]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert main([*words, f"seed={seed}", f"hydra.run.dir={name}"]) == 0
    first, again, other = (Path(name) for name in "abc")
    for file in ("summary.json", "requests.parquet", "steps.parquet"):
        assert (first / file).read_bytes() == (again / file).read_bytes()
        assert (first / file).read_bytes() != (other / file).read_bytes()


def test_sweep_has_a_job_and_a_line_for_each_combination(here, recorded, capsys):
    words = ["-m", "+policy=autoregressive,fixed_chain", f"trace={recorded}", "num_prompts=9"]
    words.append("hydra.sweep.dir=sweep")
    assert main([*words, "max_concurrency=1,4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all("tokens/s" in line for line in lines)
    found = [summary_in(path.parent) for path in Path("sweep").rglob("summary.json")]
    assert sorted((s["policy"], s["max_concurrency"]) for s in found) == [
        ("autoregressive", 1),
        ("autoregressive", 4),
        ("fixed_chain", 1),
        ("fixed_chain", 4),
    ]
    # Once more, with another load: the four are complete already.
    assert main([*words, "max_concurrency=1,4,2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("skipped: ") for line in lines) == 4
    assert len(lines) == 6


def test_another_configuration_in_the_same_folder_is_run_again(here, recorded, capsys):
    words = [f"trace={recorded}", "policy=autoregressive", "num_prompts=5", "hydra.run.dir=out"]
    assert main([*words, "seed=0"]) == main([*words, "seed=1"]) == 0
    assert "skipped" not in capsys.readouterr().out
    assert summary_in(here / "out")["seed"] == 1
    assert main([*words, "seed=1"]) == 0
    assert capsys.readouterr().out.startswith("skipped: out")


def test_a_users_policy(here, recorded, monkeypatch):
    (here / "stubborn_policy.py").write_text(POLICY_FILE)
    (here / "mine/policy").mkdir(parents=True)
    (here / "mine/policy/stubborn.yaml").write_text(
        "name: stubborn\n_target_: stubborn_policy.Stubborn\nnodes: 2\n"
    )
    monkeypatch.syspath_prepend(str(here))
    words = ["--config-dir", "mine", "policy=stubborn", f"trace={recorded}", "num_prompts=9"]
    assert main([*words, "max_concurrency=1", "hydra.run.dir=out"]) == 0
    assert summary_in(here / "out")["draft_nodes_per_request"] == 2
    before = files(here)
    assert main([*words, "policy.nodes=99", "hydra.run.dir=bad/run"]) == 2  # found while running
    assert files(here) == before
    assert not Path("bad").exists()


def test_rtable(here, recorded, capsys):
    words = ["task=rtable", f"trace={recorded}", "rtable.nodes=[3,7]", "hydra.run.dir=out"]
    assert main(words) == 0
    lines = (here / "out/rtable.csv").read_text().splitlines()
    assert lines[0] == "domain,order,nodes,R"
    rows = [line.split(",") for line in lines[1:]]
    assert {(row[0], row[1], row[2]) for row in rows} == {
        (domain, *order)
        for domain in ("code", "chat", "all")
        for order in (("chain", "7"), ("marginal", "3"), ("marginal", "7"))
    }
    printed = capsys.readouterr().out
    assert all(f"{float(row[3]):.2f}" in printed for row in rows)


def test_help_and_cfg_write_nothing(here, capsys):
    assert main(["--help"]) == 0
    assert "policy: autoregressive" in capsys.readouterr().out
    assert main(["--cfg", "job", "+policy=cast"]) == 0
    assert "_target_: simulator.policies.cast.Cast" in capsys.readouterr().out
    assert files(here) == set()


def test_words_for_hydra():
    assert normalised(["+policy=cast", "+experiment=x", "+foo=1"]) == [
        "policy=cast",
        "experiment=x",
        "+foo=1",
    ]
    assert normalised(["trace=small_semi", "seed=1"]) == ["trace=small_semi", "seed=1"]
    assert normalised(["trace=a/b.safetensors,c.json"]) == [
        "trace.recording=a/b.safetensors,c.json"
    ]
    assert normalised(["latency=x.csv"]) == ["latency.profile=x.csv", "latency.name=null"]
    assert normalised(["trace=it's mine.safetensors"]) == [
        "trace.recording='it\\'s mine.safetensors'"
    ]
    with pytest.raises(InputError, match="not both"):
        normalised(["trace=a.safetensors,small_semi"])


def test_a_file_name_that_needs_quotes(here, recorded):
    odd = here / "it's (mine) a=b.safetensors"
    odd.write_bytes(Path(recorded).read_bytes())
    words = [f"trace={odd}", "policy=autoregressive", "num_prompts=3", "hydra.run.dir=out"]
    assert main(words) == 0
    assert summary_in(here / "out")["trace"]["recording"] == str(odd)


def test_folder_names():
    assert folder_name("a=1,trace.recording='/x y/z'") == "a=1,trace.recording=_x_y_z_"
    assert folder_name("") == "default"
    long = [folder_name("k=" + "v" * 400 + end) for end in "ab"]
    assert long[0] != long[1]
    assert max(map(len, long)) < 255


# -------------------------------------------------------------------------------------- refused

REFUSED = {
    "policy=nope": "accepted: autoregressive, cast",
    "+policy=nope": "accepted: autoregressive, cast",
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
    "~policy": "policy is None",
    "max_concurrency=0": "max_concurrency is 0",
    "max_concurrency=-2": "max_concurrency is -2",
    "max_concurrency=1.5": "max_concurrency is 1.5",
    "max_concurrency=many": "max_concurrency is 'many'",
    "max_concurrency=true": "max_concurrency is True",
    "max_concurrency=null": "max_concurrency is null",
    "server.max_num_seqs=0": "server.max_num_seqs is 0",
    "request_rate=0": "request_rate is 0",
    "request_rate=-1": "request_rate is -1",
    "request_rate=nan": "request_rate is nan",
    "request_rate=fast": "request_rate is 'fast'",
    "burstiness=0": "burstiness is 0",
    "burstiness=inf": "burstiness is inf",
    "num_prompts=0": "num_prompts is 0",
    "num_prompts=1.5": "num_prompts is 1.5",
    "seed=-1": "seed is -1",
    "seed=x": "seed is 'x'",
    "goodput=tpot": "goodput is 'tpot'",
    "goodput=itl:5": "goodput is 'itl:5'",
    "trace.split=nope": "unknown split 'nope'",
    "trace.domains=[nope]": "unknown domain 'nope'",
    "task=nope": "accepted: run, rtable, published",
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
        (["seed=interval(0,3)"], "sweep type"),
    ],
)
def test_a_sweep_is_checked_before_its_first_job(here, recorded, capsys, words, says):
    refused(["-m", f"trace={recorded}", *words], capsys, says)


def test_errors_of_ours_keep_their_traceback():
    assert one_line(InputError("a\n  b")) == "a b"
    assert one_line(KeyError("x")) is None
    assert one_line(ZeroDivisionError()) is None


def test_interrupted_run_leaves_nothing(here, recorded, capsys, monkeypatch):
    def interrupted(job, on_finish=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "simulate", interrupted)
    assert main([f"trace={recorded}"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert list(here.iterdir()) == []


def test_a_failure_while_writing_leaves_no_half_files(here, recorded, monkeypatch):
    def full(path, columns):
        path.write_bytes(b"half a table")
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.results._write_parquet", full)
    assert main([f"trace={recorded}", "hydra.run.dir=out"]) == 130
    assert list(here.iterdir()) == []


def test_module_exits_with_status_2_and_one_line(here, recorded):
    done = subprocess.run(
        [sys.executable, "-m", "simulator", f"trace={recorded}", "max_concurrency=0"],
        cwd=here,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: max_concurrency is 0; accepted: a whole number of at least 1\n"
    assert list(here.iterdir()) == []


def test_flags_are_known():
    assert parse_command(["--cfg", "job"]).runs is False
    assert parse_command(["-m", "seed=1,2"]).multirun is True
