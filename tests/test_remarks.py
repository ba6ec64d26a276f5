"""Settings that change nothing are said once, before the work; everything else is quiet."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import pytest
import yaml

from simulator.cli.main import main
from simulator.cli.remarks import POLICY_SETTINGS, PUBLISHED, defaults, remarks, set_in
from simulator.cost.settings import LatencySettings
from simulator.engine.settings import GROUPS, OPTIONAL
from simulator.studies.options import read_option
from simulator.studies.settings import SECTIONS, TABLES, TASKS, Configuration
from tests.composing import composed_jobs
from traces.common.settings import keys_of, meta_of


def changed(config: dict, words: Iterable[str]) -> dict:
    """What Hydra would compose, much faster: options by name, everything else as YAML."""
    config = copy.deepcopy(config)
    for word in words:
        key, _, value = word.partition("=")
        *path, last = key.split(".")
        node = config
        for part in path:
            node = node[part]
        group = key in (*GROUPS, *OPTIONAL)
        node[last] = read_option(key, value, key) if group else yaml.safe_load(value)
    return config


def said(*lines: str) -> list[str]:
    """Of a sweep over these lines."""
    return list(remarks([changed(defaults(), line.split()) for line in lines]))


def composed(line: str) -> dict:
    (config,) = composed_jobs(line.split())
    return config


def test_the_default_is_what_hydra_composes():
    assert defaults() == composed("")
    assert set_in(defaults()) == {}


def test_what_is_given():
    config = composed("policy=treespark policy.nodes=31 latency=mi355x seed=3 bounds.nodes=7")
    assert set_in(config) == {
        "policy": "treespark",
        "policy.nodes": 31,
        "latency": "mi355x",
        "seed": 3,
        "bounds.nodes": 7,
    }
    config = composed("latency=my_gpu.csv latency.strict=true trace=x.safetensors")
    given = {"latency": "my_gpu.csv", "latency.strict": True, "trace": "x.safetensors"}
    assert set_in(config) == given
    config = composed("latency=roofline latency.roofline.gpu=H200")  # its own values are not given
    assert set_in(config) == {"latency": "roofline", "latency.roofline.gpu": "H200"}


# A setting behind words with which it changes nothing, and the word that makes it count.
NEEDS = {
    "burstiness=0.5": "request_rate=20",
    "server.router=least_loaded": "server.replicas=2",
    "server.kv_block=32": "server.kv_tokens=9000",
    "server.watermark=0.1": "server.gpu_memory_gb=80",
    "server.gpu_memory_utilization=0.5": "server.gpu_memory_gb=80",
    "latency.prefill_efficiency=0.3": "latency.prefill=modelled",
    "latency.host.launch_s=0.01": "latency.mode=eager",
    "latency.host.overlap=true": "latency.host.round_s=1e-4",
    "latency=roofline latency.roofline.allreduce_us=5": "latency.roofline.tensor_parallel=2",
    "latency=roofline latency.roofline.calibrate=p.csv latency.roofline.overhead_ms=1": (
        "latency.roofline.calibrate=null"
    ),
    "policy=treespark policy.force_calibration=true": "policy.calibration=x.json",
    "policy.width=63 policy.mass_curve=published": "policy.width=null",
    "policy.width=63 policy.charge_draft=true": "policy.width=measured",
    "policy=fixed_tree policy.widths=[2,1] policy.nodes=31": "policy.widths=null",
    "policy=fixed_tree policy.tail_chain=false": "policy.widths=[2,1]",
    "bounds.nodes=31": "task=bounds",
    "task=recommend recommend.attained=0.9": "goodput=tpot:50",
    "task=recommend recommend.concurrency=[4] max_concurrency=8": "recommend.concurrency=null",
    "task=recommend recommend.seeds=[1] recommend.tuning_seeds=[1] seed=5": "recommend.seeds=null",
    "task=recommend policy=treespark": "task=run",
    "task=capacity capacity.attained=0.9 capacity.percentile=95": "capacity.attained=null",
    "task=capacity capacity.seeds=[1] seed=5": "capacity.seeds=null",
    "task=capacity capacity.of=max_concurrency burstiness=0.5": "capacity.of=request_rate",
    "task=tournament tournament.seeds=[1] seed=5": "tournament.seeds=null",
    "task=tournament tournament.candidate=cast policy.width=31": "tournament.candidate=null",
    "task=tournament tournament.profiles=[b300] latency=mi355x": "tournament.profiles=[x.csv]",
    "task=tournament tournament.traces=[small_semi] temperature=1": "tournament.traces=null",
    "task=tournament num_prompts=99": "task=run",
    "task=claims trace=small_block": "claims.traces=null",
    "task=claims latency.draft_steps=2": "claims.profiles=[x.csv]",
    "task=rtable latency=mi355x": "task=bounds",
    "task=rtable trace.split=tuning": "task=run",
    "task=bounds server.lag=1": "task=run",
    "task=bounds burstiness=0.5": "task=capacity",
    "task=calibrate trace.domains=[code]": "task=bounds",
    "task=published latency=mi355x": "published.table=treespark_load",
    "task=published published.table=cast_mass published.fit_domain=math500": (
        "published.table=decoding"
    ),
    "task=published published.table=treespark_load max_concurrency=4": (
        "published.table=treespark_theta"
    ),
}


@pytest.mark.parametrize("line", NEEDS)
def test_a_setting_counts_with_what_it_needs_and_else_it_is_said(line):
    (found,) = said(line)
    assert found.startswith(f"no effect of {line.split()[-1]}; ")
    assert said(f"{line} {NEEDS[line]}") == []


def test_every_condition_is_tried_and_every_reader_is_a_task():
    found = " ".join(one for line in NEEDS for one in said(line))
    for model in (Configuration, LatencySettings, *SECTIONS.values()):
        for key, section, name in keys_of(model):
            meta = meta_of(section, name)
            assert set(meta.read_by.split()) <= set(TASKS)
            assert all(one.words in found for one in meta.counts), key
            assert not meta.replaces or f"{model.PREFIX}{name}=null" in found, key
    assert all(one.words in found for one in POLICY_SETTINGS.values())
    assert set(PUBLISHED) <= set(TABLES)


def test_a_sweep_in_which_it_counts_once_is_quiet():
    closed, opened = ["burstiness=0.5", "burstiness=1"], ["request_rate=20"]
    assert said(*closed, *opened) == []
    (found,) = said("burstiness=0.5", "burstiness=1", "burstiness=2 max_concurrency=2")
    assert found.startswith("no effect of burstiness=0.5,2; ")


def test_it_is_said_once_on_stderr_and_the_run_goes_on(here, recorded, capsys):
    words = [f"trace={recorded}", "policy=autoregressive", "num_prompts=4", "burstiness=0.5"]
    assert main([*words, "hydra.run.dir=out"]) == 0
    printed = capsys.readouterr()
    assert printed.err == (
        "warning: no effect of burstiness=0.5; what would make it count: an open loop "
        "(request_rate below inf, no file's arrivals)\n"
    )
    assert "results in out" in printed.out
    assert main(["-m", *words, "seed=0,1", "hydra.sweep.dir=runs"]) == 0
    assert capsys.readouterr().err.count("warning") == 1
