"""Who may use compiled rounds: loads, servers, costs and policies."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from simulator import compiling
from simulator.cost import HostOverhead
from simulator.engine.arrivals import make_workload
from simulator.engine.compiled import eligible, pays
from simulator.engine.settings import ServerSettings, Settings
from simulator.orders import StaticOrder
from simulator.policies.bastion import Bastion
from simulator.policies.fixed_chain import FixedChain
from simulator.policies.sglang_adaptive import SGLangAdaptive
from simulator.policies.shared.rules import FixedWidth, Rule
from simulator.policy import Policy
from tests.fast_cases import cost_of
from tests.serving import load_of
from tests.synthetic import make_hidden


@pytest.fixture(scope="module")
def recording():
    return make_hidden(np.random.default_rng(5), sequences=9, depths=5, lengths=[18] * 9, noise=0.5)


def allowed(recording, policy, cost=None, **load) -> bool:
    settings = load_of(**load)
    workload = make_workload(settings, recording, np.arange(recording.num_sequences))
    return eligible(settings, workload, policy, cost or cost_of())


class Watching(FixedChain):
    def observe(self, outcome) -> None:
        """Learns from what happens."""


class Longer(FixedChain):
    def allocate(self, step) -> np.ndarray:
        """Another decision than the one its parent's rule tells of."""


class Sometimes(FixedChain):
    def rule(self, batch: int) -> Rule | None:
        """For small batches alone."""
        return super().rule(batch) if batch < 3 else None


def changed() -> FixedChain:
    """With a method put on the object."""
    policy = FixedChain(3)
    policy.allocate = lambda step: step.draft.size
    return policy


class Halved(Policy):
    """Cuts a shape that is verified whole or not at all."""

    order = StaticOrder(branching=(2, 2), prefixes=(2,))

    def __init__(self, width: int) -> None:
        self.width = width

    def rule(self, batch: int) -> FixedWidth:
        return FixedWidth(self.order, self.width)


def test_closed_loops_of_policies_with_rules_may(recording):
    loads = ({}, {"max_concurrency": 5, "max_num_seqs": 4}, {"request_rate": 5.0})
    assert all(allowed(recording, FixedChain(3), **load) for load in loads)
    assert allowed(recording, Halved(2))
    assert allowed(recording, Sometimes(3), max_concurrency=2)


@pytest.mark.parametrize(
    "policy",
    [
        *(Watching(3), Longer(3), Sometimes(3), Halved(1), changed()),
        *(Bastion(), SGLangAdaptive(), Policy()),
    ],
)
def test_policies_without_full_rules_may_not(recording, policy):
    assert not allowed(recording, policy)


@pytest.mark.parametrize(
    "server",
    [
        {"replicas": 2},
        {"kv_tokens": 10_000},
        {"lag": 1},
        {"prefill": "chunked"},
        {"mixed": True},
        {"scheduling": "shortest_first"},
    ],
)
def test_other_servers_may_not(recording, server):
    assert not allowed(recording, FixedChain(3), server=ServerSettings(**server))


def test_costs_that_compiled_code_does_not_know_may_not(recording):
    for cost in (cost_of(host=HostOverhead(round_s=0.1)), cost_of(graph_sizes=[1, 8, 64])):
        assert allowed(recording, FixedChain(3), cost)
    assert not allowed(recording, FixedChain(3), cost_of(strict=True))


def test_texts_that_go_on_elsewhere_may_not(recording):
    load = Settings()
    workload = make_workload(load, recording, np.arange(9))
    assert not eligible(load, replace(workload, hands_over=True), FixedChain(3), cost_of())


def test_short_runs_do_not_pay_for_loading_until_many_have_been(recording, monkeypatch):
    """17 plain steps a request here."""

    def asked(clients: int, requests: int) -> bool:
        load = Settings(max_concurrency=clients, num_prompts=requests)
        return pays(FixedChain(3), make_workload(load, recording, np.arange(9)), recording, clients)

    monkeypatch.setattr(compiling, "_work", defaultdict(int))
    monkeypatch.setattr(compiling, "kept", lambda *names: True)
    assert [asked(1, 1) for _ in range(50)] == [False] * 50
    assert asked(64, 100_000)
    assert asked(1, 1)  # it is here now
