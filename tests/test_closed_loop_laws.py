"""Little's law of every run, and closed loops at a constant step: exact throughputs and stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.engine.settings import ServerSettings
from simulator.results.invariants import InvariantError
from simulator.results.window import find_window
from tests.served import UnevenCost
from tests.serving import STEP_S, ConstantCost, Plain, Watched, accounts_of, serve
from tests.synthetic import make_geometric, make_pool

# ---------------------------------------------------------------- Little's law


@pytest.fixture
def busy():
    """Texts of 1 to 5 tokens, steps of unlike length, two slots and a queue."""
    texts = make_pool(np.random.default_rng(1), sequences=5, depths=3, lengths=[5, 3, 1, 4, 2])
    load = {"request_rate": 60.0, "num_prompts": 30, "max_concurrency": 2}
    return serve(texts, Watched(1), UnevenCost(), **load)


def test_littles_law_fails_where_steps_hold_others(busy):
    """One request moved between steps of unlike length: all counts agree, request-seconds do not.

    `Accounts` look at every run; this one is good, and then it is not.
    """
    accounts_of(busy).check()
    steps = busy.steps
    full, lone = (np.flatnonzero(steps["batch"] == size) for size in (2, 1))
    here, there = next(
        (a, b) for a in full for b in lone if steps["step_s"][a] != steps["step_s"][b]
    )
    batch = steps["batch"].copy()
    batch[[here, there]] = batch[[there, here]]
    with pytest.raises(InvariantError, match="Little's law: .* in steps, .* between"):
        accounts_of(replace(busy, steps=steps | {"batch": batch})).check()


def test_littles_law_fails_where_more_wait_than_came(busy):
    queued = 2 * busy.steps["queued"] + 30
    with pytest.raises(InvariantError, match="Little's law: .* in the queue meanwhile"):
        accounts_of(replace(busy, steps=busy.steps | {"queued": queued})).check()


# ---------------------------------------------------------------- closed loops


def texts_of_length(length: int, sequences: int = 4):
    """Texts of `length` outputs behind prompts of 5 tokens."""
    rng = np.random.default_rng(2)
    return make_geometric(0.6, rng, sequences=sequences, length=length, depths=3)


@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("length", [2, 9, 40])
@pytest.mark.parametrize("turns", [1, 3])
def test_a_full_batch_decodes_a_token_per_slot_and_step(slots, length, turns):
    """Constant step T, C slots, more clients or as many: C / T tokens per second, exactly."""
    load = {"max_concurrency": turns * slots, "num_prompts": 8 * turns * slots}
    facts = serve(texts_of_length(length), Plain(), **load, max_num_seqs=slots)
    window = find_window(facts)
    inside = window.steps(facts)
    assert window.seconds > 0
    assert facts.steps["committed"][inside].sum() / window.seconds == slots / STEP_S


@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("length", [2, 9, 40])
@pytest.mark.parametrize("turns", [1, 3])
def test_slots_turn_over_in_one_period(slots, length, turns):
    """C slots, prompts that hold up the batch for P each: a period of (L - 1) T + C P, exactly.

    Every slot writes a text per period. With m C clients a request stays m periods (machine
    repair at full use; interactive response time law: R = clients / throughput).
    """
    prompt_token_s = STEP_S / 16
    cost = ConstantCost(prompt_token_s=prompt_token_s)
    clients = turns * slots
    load = {"max_concurrency": clients, "num_prompts": (6 + turns) * clients}
    facts = serve(texts_of_length(length), Plain(), cost, **load, max_num_seqs=slots)
    period_s = (length - 1) * STEP_S + slots * 5 * prompt_token_s
    window = find_window(facts)
    steps, requests = facts.steps, facts.requests
    # Behind the first texts of every slot, which start in the middle, and before clients go away.
    begin_s, last_s = requests["finish_s"][2 * clients], requests["arrival_s"].max()
    steady = (steps["time_s"] >= begin_s) & (steps["time_s"] <= last_s)
    time_s = steps["time_s"][steady]
    assert len(time_s) > 2 * (length - 1)
    assert set(time_s[length - 1 :] - time_s[: 1 - length]) == {period_s}
    inside = window.requests(facts) & (requests["arrival_s"] >= begin_s)
    assert np.count_nonzero(inside) > clients
    assert set((requests["finish_s"] - requests["arrival_s"])[inside]) == {turns * period_s}


def test_replicas_share_the_clients_work():
    """Two replicas of two slots, taking turns: 2 x 2 / T tokens per second."""
    rules = ServerSettings(max_num_seqs=2, replicas=2)
    load = {"max_concurrency": 8, "num_prompts": 96}
    facts = serve(texts_of_length(20), Plain(), **load, server=rules)
    window = find_window(facts)
    committed = facts.steps["committed"][window.steps(facts)].sum()
    assert committed / window.seconds == pytest.approx(4 / STEP_S, rel=0.02)
