"""The training text: learnable tasks with checkable answers, held-out text never trained on."""

import ast
import json
import re
from functools import cache

import numpy as np
import pytest

from real_runner.training.corpus import DOMAINS, generate

COUNT = 30


@cache
def many(domain, split):
    rng = np.random.default_rng([1, *domain.encode(), split == "train"])
    return [generate(domain, rng, split) for _ in range(COUNT)]


@pytest.mark.parametrize("domain", DOMAINS)
def test_prompts_end_in_a_cue_and_completions_are_clean(domain):
    for example in many(domain, "train") + many(domain, "heldout"):
        assert example.domain == domain
        assert example.prompt.endswith(":\n")
        assert example.completion == example.completion.strip()
        assert example.completion


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_same_stream_gives_the_same_text_and_splits_are_disjoint(domain):
    assert many(domain, "train") == many.__wrapped__(domain, "train")
    assert not {e.completion for e in many(domain, "train")} & {
        e.completion for e in many(domain, "heldout")
    }


def test_arithmetic_is_correct():
    steps = 0
    for example in many("arithmetic", "train"):
        for sum_of, result in re.findall(r"((?:\d+ [-+x/] )+\d+) = (\d+)", example.completion):
            value = eval(sum_of.replace("x", "*"))  # only digits, spaces and operators
            assert value == int(result), example.completion
            steps += 1
    assert steps > COUNT


def test_extracts_are_json_of_what_the_text_says():
    for example in many("extract", "heldout"):
        for value in json.loads(example.completion).values():
            assert str(value) in example.prompt


def test_code_is_python_and_the_new_name_replaced_the_old_one():
    for example in many("code", "heldout"):
        ast.parse(example.completion)
        old, new = re.match(r"# Rename (\w+) to (\w+)\n", example.prompt).groups()
        assert re.search(rf"\b{new}\b", example.completion)
        assert not re.search(rf"\b{old}\b", example.completion)
