"""Words that are nearly right: what is said about them, and what they are taken for."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.cli.main import main
from simulator.cli.overrides import normalised
from tests.composing import composed_jobs
from tests.test_refusals import POLICIES, refused
from traces.common.errors import near_note

PROFILE_HEADER = "hardware: my card\nmodel: my model\nengine: my engine\nsource: me\n"

SEVERAL = [
    ("max_concurrency=1,4", "max_concurrency is 1,4"),
    ("seed=0,1", "seed is 0,1"),
    ("temperature=0,1", "temperature is 0,1"),
    ("policy=cast,treespark", "policy is cast,treespark"),
    ("policy.width=3,5", "policy.width is 3,5"),
    ("seed=range(0,3)", "seed is range(0,3)"),
    ("policy=glob(fixed*)", "policy is glob(fixed*)"),
    ("trace=a.json,b.json", "trace is a.json,b.json"),
]


@pytest.mark.parametrize(("word", "says"), SEVERAL, ids=[word for word, _ in SEVERAL])
def test_several_values_need_a_flag(here, capsys, word, says):
    refused([word], capsys, f"error: {says}; several values need -m\n")
    assert main(["--cfg", "job", word]) == 2
    assert capsys.readouterr().err == f"error: {says}; several values need -m\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["policy=glob(nope*)"], "policy is glob(nope*), which no run has; accepted: a pattern of"),
        (["policy=glob(nope*)"], f"a pattern of {', '.join(POLICIES)}\n"),
        (["policy=glob(*,exclude=[*])"], "policy is glob(*,exclude=[*]), which no run has"),
        (["seed=glob(*)"], "accepted: a group's key"),
        (["seed=range(3,3)"], "seed is range(3,3), which no run has; accepted: a range with"),
        (["seed=0,1", "max_concurrency=range(4,1)"], "max_concurrency is range(4,1)"),
        (["seed=0,1", "hydra.sweeper.max_batch_size=0"], "max_batch_size is 0; accepted: 1 or"),
        (["seed=0,1", "hydra.sweep.subdir=x"], "hydra.sweep.subdir is 'x', one folder for all"),
        (["seed=0,1", "hydra.sweep.dir="], "hydra.sweep.dir is ''; accepted: a folder"),
        (["seed=0,1", "hydra.sweep.dir=' '"], "hydra.sweep.dir is ' '; accepted: a folder"),
        (["--cfg", "job"], "--cfg with -m; accepted: one of them"),
    ],
)
def test_a_sweep_of_no_runs_or_of_lost_ones(here, capsys, words, says):
    refused(["-m", *words], capsys, says)


def test_a_run_in_a_folder_without_a_name(here, capsys):
    refused(["hydra.run.dir="], capsys, "hydra.run.dir is ''; accepted: a folder, . for this one")


UNKNOWN = {
    "polcy=cast": "near it: policy\n",
    "+polcy=cast": "near it: policy\n",
    "sed=1": "near it: seed",
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
}


@pytest.mark.parametrize("word", UNKNOWN)
def test_unknown_keys(here, capsys, word):
    refused([word], capsys, UNKNOWN[word])


def test_all_top_keys_are_listed(here, capsys):
    refused(["nope=1"], capsys, "policy, trace, latency, server, workload, experiment, max_conc")


def test_in_a_sweep_the_policy_that_lacks_the_key_is_named(here, capsys):
    words = ["-m", "policy=fixed_chain,cast", "policy.length=3,5"]
    refused(words, capsys, "unknown key policy.length of policy=cast; accepted: policy.name")


def test_keys_of_files_are_not_said_to_be_the_default_options(here, capsys):
    Path("my.yaml").write_text("profile: roofline\n")
    for word in ("latency=my.yaml", "latency=my.csv", "trace=my.json"):
        group = word.partition("=")[0]
        refused([word, f"{group}.nope=1"], capsys, f"unknown key {group}.nope; accepted: {group}.")


def test_a_key_that_only_the_swept_options_have(here, recorded, capsys):
    """The default policy, cast, has no length."""
    words = ["-m", "policy=choice(fixed_chain)", "policy.length=2", f"trace={recorded}"]
    assert main([*words, "num_prompts=9", "max_concurrency=1", "hydra.sweep.dir=out"]) == 0
    assert "policy=fixed_chain policy.length=2 " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("latency=/none/new", "latency is '/none/new'; accepted: a100_qwen3_8b"),
        ("latency=a/b/new", "or a profile's file (.csv)\n"),
        ("trace=x/b300.csv", "trace is 'x/b300.csv'; accepted: small_block"),
        ("trace=x/b300.csv", "or a recording's file (.safetensors or .json)\n"),
        ("latency=my_gpu", "; there is a file my_gpu.csv: latency=my_gpu.csv\n"),
        ("trace=mine", "; there is a file mine.json: trace=mine.json\n"),
        ("latency=my_gpu.yaml", "my_gpu.yaml: a profile's header; accepted: its table, my_gpu.csv"),
        ("policy=own.yaml", "--config-dir FOLDER with FOLDER/policy/own.yaml\n"),
    ],
)
def test_files_in_place_of_options(here, capsys, word, says):
    Path("my_gpu.csv").write_text("")
    Path("mine.json").write_text("")
    Path("my_gpu.yaml").write_text(PROFILE_HEADER)
    refused([word], capsys, says)


def test_a_recordings_name_is_its_option():
    assert normalised(["trace=small_semi_t0"]) == ["trace=small_semi"]
    assert normalised(["+trace=small_semi_t1,small_block_t0"]) == [
        "trace=small_semi_t1,small_block"
    ]
    (job,) = composed_jobs(["trace=small_block_t0"])
    assert job["trace"]["recording"] == "small_block_t0"


def test_near_notes():
    assert near_note("widht", ["width", "nodes"]) == "; near it: width"
    assert near_note("x", ["x1", "x2"]) == ""  # too short to say
    assert near_note("node", ["nodes", "nodes_3", "anode", "nodes_2"]) == ""  # too many


def test_a_null_of_an_option_that_is_swept(here, recorded, capsys):
    words = ["-m", f"trace={recorded}", "policy=fixed_chain", "num_prompts=4", "max_concurrency=1"]
    words += ["server=default,vllm", "server.kv_tokens=null", "hydra.sweep.dir=out"]
    assert main(words) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_task_that_reads_no_profile_takes_any(here, recorded, capsys):
    """It is told that the setting has no effect, and runs."""
    words = [f"trace={recorded}", "task=rtable", "rtable.nodes=[3]", "latency.strict=maybe"]
    assert main([*words, "hydra.run.dir=out"]) == 0
    assert "warning: no effect of latency" in capsys.readouterr().err
