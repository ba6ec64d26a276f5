"""Laws of the server in random configurations: texts, loads, memory, prompts, routers, policies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.served import check_all, tables
from tests.server_cases import ONCE_BROKEN, Case, cases


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("workload")


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(case=cases())
def test_every_run_keeps_the_laws(folder, case: Case):
    run = case.run(folder)
    check_all(run)
    assert tables(case.run(folder)) == tables(run)  # the same seed, the same bytes


@pytest.mark.parametrize("name", ONCE_BROKEN)
def test_what_once_broke_keeps_the_laws(folder, name):
    run = ONCE_BROKEN[name].run(folder)
    check_all(run)


def test_a_prompt_pushed_out_while_read_goes_before_shorter_texts(folder):
    run = ONCE_BROKEN["who was pushed out goes first"].run(folder)
    assert run.facts.requests["preemptions"].tolist()[1] > 0
    first_s = run.facts.requests["first_token_s"]
    assert first_s[1] < first_s[2]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(case=cases())
def test_requests_are_the_same_for_every_policy(folder, case: Case):
    """What comes, when, and what is written of it; in a closed loop clients decide when."""
    ours, theirs = case.run(folder).facts.requests, case.run(folder, "plain").facts.requests
    names = ["sequence", "domain", "prompt_tokens", "output_tokens", "warmup", "rejected"]
    if "request_rate" in case.load or case.file_times:
        names.append("arrival_s")
    for name in names:
        assert np.array_equal(ours[name], theirs[name]), name
