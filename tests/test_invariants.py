"""What holds at the end of every run: a run worked out by hand, and each way to break it."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from simulator.results.facts import Facts
from simulator.results.invariants import InvariantError
from tests.serving import accounts_of, columns


@pytest.fixture
def run() -> Facts:
    """Two requests, prefills of 1 s, four steps of 2 s; a closed loop of two clients.

    0: from 0, admitted at 0, first token at 1, in steps at 2, 4 and 7, done at 9 with 6 tokens.
    1: from 0, admitted at 1, first token at 2, in steps at 2 and 4, done at 6 with 3 tokens.
    2: from 6, admitted at 6, first token at 7, in steps at 7 and 9, done at 11 with 4 tokens.
    """
    requests = columns(
        request=[0, 1, 2],
        arrival_s=[0.0, 0.0, 6.0],
        admitted_s=[0.0, 1.0, 6.0],
        first_token_s=[1.0, 2.0, 7.0],
        finish_s=[9.0, 6.0, 11.0],
        output_tokens=[6, 3, 4],
        warmup=[False, True, False],
        rejected=[False, False, False],
    )
    steps = columns(
        time_s=[2.0, 4.0, 7.0, 9.0],
        step_s=[2.0, 2.0, 2.0, 2.0],
        batch=[2, 2, 2, 1],
        queued=[0, 0, 0, 0],
        replica=[0, 0, 0, 0],
        kv_blocks=[3, 5, 4, 2],
        drafted=[True, True, True, True],
    )
    rounds = columns(
        step=[0, 0, 1, 1, 2, 2, 3],
        request=[0, 1, 0, 1, 0, 2, 2],
        committed=[1, 1, 2, 2, 2, 2, 1],
        accepted=[0, 0, 1, 1, 1, 1, 0],
        width=[1, 1, 1, 1, 1, 1, 1],
    )
    return Facts(requests, steps, rounds, 2)


def test_the_accounts_by_hand(run):
    """Stays of 9, 6 and 5 s: 14 in steps, 3 before their first tokens (1, 2 and 1: 4 with the
    queue), 2 between steps (request 0 waits from 1 to 2, and from 6 to 7)."""
    accounts = accounts_of(run)
    assert (accounts.stay_s, accounts.in_steps_s) == (20.0, 14.0)
    assert (accounts.before_s, accounts.between_s) == (4.0, 2.0)
    assert (accounts.decoded, accounts.first, accounts.emitted) == (11, 2, 13)
    assert (accounts.rounds, accounts.batches, accounts.kv_blocks) == (7, 7, 5)
    accounts_of(run).check(5)


def broken(run: Facts, table: str, name: str, place: int, value) -> Facts:
    facts = copy.deepcopy(run)
    getattr(facts, table)[name][place] = value
    return facts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rounds", "committed", 3, 3), "tokens: 12 of rounds and 2 first ones, 14, .*emitted 13"),
        (("requests", "output_tokens", 2, 5), "tokens: 11 .* emitted 14"),
        (("steps", "batch", 3, 2), "rounds 7, the sum of the steps' batches 8"),
        (("steps", "time_s", 1, 3.5), "replica 0: a step begins at .*3.5.* before .*4.0"),
        (("steps", "step_s", 0, 2.5), "replica 0: a step begins at .*4.0.* before .*4.5"),
        (("requests", "finish_s", 1, 6.5), "request 1 finishes at .*6.5.*; its last chunk .*6.0"),
        (("requests", "finish_s", 2, np.nan), "3 requests, 3 arrived, 2 finished, 0 rejected"),
        (("requests", "arrival_s", 2, 6.5), r"request 2: arrival.* at \[6.5, 6.0, 7.0, 11.0\]"),
        (("requests", "first_token_s", 0, 9.5), "in a step 7.5 s before its last one ends"),
        (("requests", "admitted_s", 1, 2.5), r"request 1: arrival.* at \[0.0, 2.5, 2.0, 6.0\]"),
        (("requests", "admitted_s", 0, np.nan), "request 0: arrival"),
        (("requests", "rejected", 1, True), "request 1 is rejected and served"),
        (("requests", "first_token_s", 1, 3.0), "in a step 1.0 s before its last one ends"),
        (("steps", "queued", 2, 4), "Little's law: .*14.0.* in steps and .*8.0.* in the queue"),
    ],
)
def test_each_way_to_break_it(run, change, message):
    with pytest.raises(InvariantError, match=message):
        accounts_of(broken(run, *change)).check()


def test_the_cache_is_not_larger_than_it_is(run):
    with pytest.raises(InvariantError, match="5 KV blocks held; there are 4"):
        accounts_of(run).check(4)


def test_littles_law_is_about_the_steps_batches(run):
    """A step that says two where only one was there, with a round nobody asked for."""
    facts = broken(run, "steps", "batch", 3, 2)
    accounts = accounts_of(facts)
    accounts.rounds += 1
    with pytest.raises(InvariantError, match=r"Little's law: .*16.0.* in steps, .*2.0.*20.0"):
        accounts.check()


def test_replicas_may_step_at_the_same_time(run):
    facts = broken(run, "steps", "time_s", 3, 7.0)
    with pytest.raises(InvariantError, match="replica 0: a step begins"):
        accounts_of(facts).check()
    facts.steps["replica"][3] = 1
    facts.rounds["request"][5] = 0  # request 2 is in one of them only
    with pytest.raises(InvariantError, match="in a step 2.0 s before its last one ends"):
        accounts_of(facts).check()


def test_a_run_is_not_cut_off(run):
    """Without the last step: request 2 is still there at 9 s, with two of its tokens."""
    requests = run.requests | {"finish_s": np.array([9.0, 6.0, np.nan])}
    steps = {name: values[:3] for name, values in run.steps.items()}
    rounds = {name: values[:6] for name, values in run.rounds.items()}
    with pytest.raises(InvariantError, match="not all are over"):
        accounts_of(Facts(requests, steps, rounds, 2)).check()
