"""What is refused of a policy's settings names the key that the user typed."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.cost import StepCost, find_profile
from simulator.engine.run import Job, prepare, tables_of
from simulator.engine.settings import Settings
from simulator.orders.specs import refusal
from simulator.policies.loading import make_policy
from simulator.studies.options import names, read_option
from tests.synthetic import make_pool
from traces.common.errors import InputError

BAD = (0, -1, 40_000, 2**63, "x", 1.5, True)
COUNTS = [
    (policy, key)
    for policy in names("policy")
    for key, value in read_option("policy", policy, "policy").items()
    if type(value) is int
]


@pytest.fixture(scope="module")
def job():
    """A function from a node to its checked job: a pool of 8 ranks and 7 depths."""
    recording = make_pool(np.random.default_rng(0), sequences=9, depths=7, lengths=[12] * 9)
    everyone, tables = np.arange(9), tables_of(recording)
    cost = StepCost(find_profile("b300"))

    def made(node) -> Job:
        policy = make_policy(node)
        return Job({"policy": node}, Settings(), recording, everyone, cost, policy, tables)

    return made


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path))


@pytest.mark.parametrize(("policy", "key"), COUNTS)
def test_a_bad_number_is_refused_by_its_key(job, policy, key):
    said = []
    for value in BAD:
        node = {**read_option("policy", policy, "policy"), key: value}
        try:
            prepare(job(node))
        except InputError as error:
            said.append((value, str(error)))
    assert {2**63, "x", 1.5, True} <= {value for value, _ in said}
    for value, text in said:
        assert text.startswith(f"policy.{key} is {value!r}; accepted: ")


@pytest.mark.parametrize(
    ("policy", "change", "says"),
    [
        ("fixed_tree", {"branch": 9}, "policy.branch is 9; accepted: up to 8, the ranks per depth"),
        ("fixed_tree", {"branch": 2.5}, "policy.branch is 2.5; accepted: an integer in 1..32766"),
        ("fixed_tree", {"scores": "best"}, "policy.scores is 'best'; accepted: auto, parent"),
        ("priced_survival", {"branch": 9}, "policy.branch is 9; accepted: up to 8, the ranks"),
        ("fixed_tree", {"widths": [2, 0]}, "policy.widths is 0; accepted: an integer in 1.."),
        ("fixed_tree", {"widths": []}, "policy.widths is []; accepted: at least one depth"),
        ("fixed_tree", {"widths": 3}, "policy.widths is 3; accepted: a list: an integer in 1.."),
        (
            "fixed_tree",
            {"widths": [1] * 8},
            "policy.widths is [1, 1, 1, 1, 1, 1, 1, 1]; accepted: no more than 7 depths (8 here)",
        ),
        (
            "fixed_tree",
            {"branching": [9]},
            "policy.branching is [9]; accepted: no more than 8 ranks per depth (9 here), as",
        ),
        (
            "fixed_tree",
            {"branching": [2], "widths": [2]},
            "policy.branching is [2]; accepted: null with widths",
        ),
        ("pctree", {"packed_tokens": 32768}, "policy.packed_tokens is 32768; accepted: a whole"),
        (
            "priced_survival",
            {"price": "dear"},
            "policy.price is 'dear'; accepted: local, ratio, lam",
        ),
        ("priced_survival", {"max_step_ms": -1}, "policy.max_step_ms is -1; accepted: a number ab"),
        (
            "priced_survival",
            {"tpot_ms": True},
            "policy.tpot_ms is True; accepted: a number above 0",
        ),
        ("priced_survival", {"skip": 1}, "policy.skip is 1; accepted: False, True"),
        ("priced_survival", {"nodes_alone": 32767}, "policy.nodes_alone is 32767; accepted: a"),
    ],
)
def test_what_an_order_refuses_is_said_of_the_setting(job, policy, change, says):
    node = {**read_option("policy", policy, "policy"), **change}
    with pytest.raises(InputError) as caught:
        prepare(job(node))
    assert str(caught.value).startswith(says)


def test_a_refusal_survives_another_process():
    """Workers send errors back pickled."""
    import pickle

    error = pickle.loads(pickle.dumps(refusal("ChainOrder", "length", 9, "less")))
    assert str(error) == "ChainOrder length: 9, accepted: less"
    assert str(error.under("policy")) == "policy.length is 9; accepted: less"
