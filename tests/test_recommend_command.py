"""The command line of a configuration composes to that configuration."""

from __future__ import annotations

import shlex

import pytest

from simulator.engine.inputs import settled
from simulator.studies.contest.command_line import command_of, overrides_of, written
from simulator.studies.settings import SECTIONS
from tests.composing import composed_jobs

COMMANDS = [
    [],
    ["policy=priced_survival", "policy.price=ratio", "max_concurrency=64", "seed=3"],
    ["policy=treespark", "policy.ladder=[{max_batch: null, theta: 0.4}]", "latency=mi355x"],
    ["trace=small_block", "temperature=1", "policy=dspark"],
    ["trace=small_semi_t1", "trace.domains=[code]", "latency.strict=true"],
    ["max_concurrency=null", "request_rate=12.5", "burstiness=0.5", "goodput='ttft:500 tpot:5'"],
    ["server=vllm", "server.kv_tokens=100000", "latency=blackwell_qwen3_4b", "num_prompts=10"],
    ["trace=my folder/it's.safetensors", "latency=my.csv", "goodput=[ttft:1,tpot:2]"],
    ["+latency.host.request_s=2e-5", "latency.host.overlap=true", "latency.draft_steps=2"],
]


def composed(words: list[str]) -> dict:
    return settled(composed_jobs(words)[0])


def without_tasks(config: dict) -> dict:
    return {k: v for k, v in config.items() if k not in (*SECTIONS, "task")}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_back_and_forth(words):
    config = composed(words)
    line = command_of(config)
    program, *found = line.split(" ", 3)
    assert [program, *found[:2]] == ["python", "-m", "simulator"]
    again = composed(shlex.split(line)[3:])
    assert without_tasks(again) == without_tasks(config)


def test_a_policy_of_another_folder():
    """No option of ours is called after it: the nearest one, and what differs."""
    config = composed([])
    config["policy"] = {"name": "mine", "_target_": "my.Policy", "size": 3, "why": "not 3"}
    again = composed(overrides_of(config))
    assert again["policy"] == config["policy"]


def test_few_words():
    assert overrides_of(composed([])) == []
    assert overrides_of(composed(["policy=fixed_tree", "policy.nodes=7"])) == [
        "policy=fixed_tree",
        "policy.nodes=7",
    ]
    assert overrides_of(composed(["server=vllm"])) == ["server=vllm"]
    assert overrides_of(composed(["temperature=1"])) == ["trace.recording=small_semi_t1"]


NUMBERS = [None, True, 3, 2.5, 1e-5, 1e300, float("inf")]
TEXTS = ["plain", "null", "12", "a b", "x:y", "1..D", "it's", "back\\slash\\", "a,b", "", "[x]"]
ODD = ["[x]", "${x}", "=", "~"]
NESTED = [[1, "a b", None], {"a": [1.5, {"b": "c:d"}]}]


@pytest.mark.parametrize("value", [*NUMBERS, *TEXTS, *ODD, *NESTED], ids=repr)
def test_values_survive_the_grammar(value):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (override,) = OverridesParser.create().parse_overrides([f"key={written(value)}"])
    found = override.value()
    assert found == value
    assert type(found) is type(value)
