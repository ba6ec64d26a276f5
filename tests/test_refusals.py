"""What the command line refuses: exit status 2, one line, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cli.main import main
from simulator.engine import run as run_module

ROOT = Path(__file__).parents[1]
POLICIES = ", ".join(sorted(path.stem for path in (ROOT / "conf" / "policy").glob("*.yaml")))
HUGE = "1" + "0" * 400

WORDS = {
    "policy=nope": f"accepted: {POLICIES}\n",
    "policy=null": "Config group",
    "latency=nope": "b300",
    "server=nope": "accepted: default",
    "experiment=nope": "concurrency_sweep",
    "task=nope": "accepted: run, rtable, ",
    "hydra.run.nope=1": "--cfg hydra",
    "~policy": "policy is missing",
    "max_concurrency=many": "max_concurrency is 'many'",
    "max_concurrency=null": "max_concurrency is None",
    "request_rate=0": "request_rate is 0",
    "request_rate=" + HUGE: "request_rate is 1000",
    "request_rate=4 burstiness=" + HUGE: "burstiness is 1000",
    "goodput=tpot": "goodput is 'tpot'",
    "trace.split=nope": "unknown split 'nope'",
    "trace.domains=[nope]": "unknown domain 'nope'",
    "+trace.at_temperature.hot=x temperature=3": "'hot'; accepted: temperatures",
    "policy._target_=nope.Nope": "policy._target_ 'nope.Nope'",
    "policy._target_=builtins.dict": "accepted: a subclass of Policy",
    "policy.width=wide": "policy.width is 'wide'",
    "policy=priced_survival policy.max_step_ms=" + HUGE: "policy.max_step_ms is 1000",
    "policy=batch_schedule policy.table=null": "policy.table is None; accepted: a list of [",
    "policy=sglang_adaptive policy.tiers=3": "policy.tiers is 3; accepted: a list of {",
    "policy=sglang_adaptive policy.initial=99": "policy.initial is 99; accepted: ",
    "policy=treespark policy.ladder=5": "policy.ladder is 5; accepted: a list of {",
    "task=bounds bounds.batches=[100000000]": "bounds.batches is [100000000]; accepted:",
    "task=tournament tournament.rivals=[nope]": "tournament.rivals[0].policy is 'nope'",
    "seed=${nope}": "nope",
    "max_concurrency={": "max_concurrency={: not KEY=VALUE",
    "policy": "policy: not KEY=VALUE",
    "hydra.run.dir=": "hydra.run.dir is ''; accepted: a folder, . for this one",
    "--nope": "unrecognized arguments: --nope",
    "--config-dir=nope": "--config-dir is 'nope'",
    "objective=speed": "objective is 'speed'; accepted: request_goodput",
    "objective=request_goodput": "accepted with goodput=null",
    "objective=mean_tpot_ms direction=maximize": "mean_tpot_ms: minimize",
    "objective=output_throughput direction=up": "direction is 'up'",
    "direction=maximize": "accepted without an objective: null",
    "objective=output_throughput task=rtable": "accepted with task=rtable: null",
    "objective=3": "objective is 3",
    "-m --cfg job": "--cfg with -m; accepted: one of them",
}
UNKNOWN = {
    "nope=1": "unknown key nope; accepted: policy, trace, latency, server, workload, experiment, ",
    "polcy=cast": "near it: policy\n",
    "sed=1": "near it: seed",
    "trace.nope=1": "accepted: trace.recording",
    "+server.nope=1": "accepted: server.max_num_seqs",
    "+latency.nope=1": "latency.nope",
    "workload.path=x": "unknown key workload.path of workload=recorded; accepted: workload.name, "
    "workload.prompt_tokens; known with workload=file\n",
    "policy.widht=3": "unknown key policy.widht of policy=cast; accepted: policy.name, policy.width"
    ", policy.nodes_per_request, policy.max_nodes_per_request, policy.scores, policy.mass_curve, "
    "policy.charge_draft; near it: policy.width\n",
    "+policy.widht=3": "near it: policy.width\n",
    "policy.length=3": "; known with policy=fixed_chain\n",
    "~policy.widht": "unknown key policy.widht of policy=cast",
    "server.max_num_sqs=4": "near it: server.max_num_seqs\n",
    "latency.host.bubbles_s=1": "near it: latency.host.bubble_s\n",
    "latency.roofline.gpu=A100": "known with latency=roofline\n",
    "recommend.polices=x": "near it: recommend.policies\n",
    "policy=casst": "near it: cast",
    "trace=small_semmi": "near it: small_semi, small_semi_t1\n",
    # Keys of files are not said to be the default option's.
    "latency=my.yaml latency.nope=1": "unknown key latency.nope; accepted: latency.",
    "latency=my_gpu.csv latency.nope=1": "unknown key latency.nope; accepted: latency.",
    "trace=mine.json trace.nope=1": "unknown key trace.nope; accepted: trace.",
}
FILES = {
    "trace=nope": "accepted: small_block",
    "trace=nope.safetensors": "nope.safetensors: no such recording",
    "trace=broken.safetensors": "broken.safetensors: not a complete safetensors file",
    "latency=nope.csv": "nope.csv: no such file",
    "latency=my_gpu.csv": "my_gpu.yaml: ",
    "latency=/none/new": "latency is '/none/new'; accepted: a100_qwen3_8b",
    "latency=a/b/new": "or a profile's file (.csv)\n",
    "trace=x/b300.csv": "or a recording's file (.safetensors or .json)\n",
    "latency=my_gpu": "; there is a file my_gpu.csv: latency=my_gpu.csv\n",
    "trace=mine": "; there is a file mine.json: trace=mine.json\n",
    "latency=my_gpu.yaml": "my_gpu.yaml: a profile's header; accepted: its table, my_gpu.csv",
    "policy=own.yaml": "--config-dir FOLDER with FOLDER/policy/own.yaml\n",
    "temperature=1 trace.at_temperature={0:small_semi_t0,1:small_block_t0}": (
        "trace.at_temperature.1 is small_block_t0; accepted: a recording"
    ),
}
SWEEPS = {
    "policy=glob(nope*)": "policy is glob(nope*), which no run has; accepted: a pattern of "
    f"{POLICIES}\n",
    "policy=glob(*,exclude=[*])": "policy is glob(*,exclude=[*]), which no run has",
    "seed=glob(*)": "accepted: a group's key",
    "seed=range(3,3)": "seed is range(3,3), which no run has; accepted: a range with",
    "seed=0,1 max_concurrency=range(4,1)": "max_concurrency is range(4,1)",
    "seed=0,1 hydra.sweeper.max_batch_size=0": "max_batch_size is 0; accepted: 1 or",
    "hydra/launcher=nope": "hydra/launcher is 'nope'; accepted: basic",
    "trace=a.safetensors,small_semi": "not both",
    "seed=0,1 hydra.sweep.subdir=x": "hydra.sweep.subdir is 'x', one folder for all",
    "seed=0,1 hydra.sweep.dir=": "hydra.sweep.dir is ''; accepted: a folder",
    "seed=interval(0,3)": "seed is interval(0,3); accepted: values",
    "policy=autoregressive,nope": "policy is 'nope'",
    "policy=autoregressive max_concurrency=1,0": "max_concurrency is 0",
    "policy=fixed_chain policy.length=2,8": "policy.length is 8; accepted: up to 7, the",
    "policy=fixed_chain,cast policy.length=3,5": "unknown key policy.length of policy=cast; accept",
    "policy=fixed_chain,cast latency.strict=true": "(strict): a step of",
    "experiment=concurrency_sweep max_concurrency=-1": "max_concurrency is -1",
}
SEVERAL = ["max_concurrency=1,4", "temperature=0,1", "policy=cast,treespark", "policy.width=3,5",
           "seed=range(0,3)", "policy=glob(fixed*)", "trace=a.json,b.json"]  # fmt: skip
ALL = WORDS | UNKNOWN | FILES | {f"-m {words}": says for words, says in SWEEPS.items()}


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


@pytest.mark.parametrize("words", ALL, ids=lambda words: words[:60])
def test_refusals(here, recorded, capsys, words):
    for name in ("broken.safetensors", "mine.json", "my_gpu.csv"):
        Path(name).write_text("")
    Path("my_gpu.yaml").write_text("hardware: my card\nmodel: my model\nengine: mine\nsource: me\n")
    Path("my.yaml").write_text("profile: roofline\n")
    own = [] if "trace" in words else [f"trace={recorded}"]
    refused([*words.split(), *own], capsys, ALL[words])


@pytest.mark.parametrize("word", SEVERAL)
def test_several_values_need_a_flag(here, capsys, word):
    line = f"error: {word.replace('=', ' is ')}; several values need -m\n"
    refused([word], capsys, line)
    refused(["--cfg", "job", word], capsys, line)


@pytest.mark.parametrize("place", ["/proc/none", "/dev/null/none"])
def test_a_folder_that_cannot_be_made(here, recorded, capsys, place):
    refused(
        [f"trace={recorded}", "num_prompts=2", f"hydra.run.dir={place}"], capsys, f": {place}: "
    )


def test_results_of_a_tournament_must_be_numbers(here, recorded, capsys):
    bad = dict.fromkeys(("tokens_s", "nodes_per_request", "modelled", "clamped"))
    bad |= dict.fromkeys(("requests", "prompts", "tokens", "seconds"))
    Path("tournament.jsonl").write_text(json.dumps({"key": "a", "result": bad}) + "\n")
    words = "task=tournament policy=fixed_chain tournament.rivals=[autoregressive] hydra.run.dir=."
    assert main([*words.split(), f"trace={recorded}"]) == 2
    assert "line 1 is no result of task=tournament" in capsys.readouterr().err


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


def test_module_exits_with_status_2_and_one_line(here, recorded):
    command = [sys.executable, "-m", "simulator", f"trace={recorded}", "max_concurrency=0"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    line = "max_concurrency is 0; accepted: a whole number from 1 to 100000, or null"
    assert done.stderr == f"error: {line}\n"
    assert list(here.iterdir()) == []
