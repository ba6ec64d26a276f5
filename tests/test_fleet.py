"""Replicas behind a router, and policies that see the past."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from simulator.engine.fleet import join_shortest_queue, least_loaded, round_robin
from simulator.engine.lagged_policy import Lagged
from simulator.engine.settings import ServerSettings
from simulator.policy import Policy
from tests.serving import STEP_S, ConstantCost, Plain, Watched, serve
from tests.synthetic import make_geometric, make_pool

U = STEP_S


@pytest.fixture(scope="module")
def even():
    """Six texts of 20 outputs."""
    return make_geometric(0.6, np.random.default_rng(2), sequences=6, length=20, depths=5)


def test_routers_choose_by_their_rule():
    servers = [
        SimpleNamespace(name="a", tokens=9, requests=2),
        SimpleNamespace(name="b", tokens=5, requests=4),
        SimpleNamespace(name="c", tokens=5, requests=2),
    ]
    names = {
        rule.__name__: [next(choose).name for _ in range(4)]
        for rule in (round_robin, least_loaded, join_shortest_queue)
        if (choose := rule(servers))
    }
    assert names == {
        "round_robin": ["a", "b", "c", "a"],
        "least_loaded": ["b"] * 4,
        "join_shortest_queue": ["a"] * 4,
    }


def test_two_replicas_do_the_work_of_two_servers(even):
    """Plain decoding at a constant step: twice the replicas, twice the throughput."""
    load = {"max_concurrency": 4, "num_prompts": 48, "seed": 1}
    one = serve(even, Plain(), **load, server=ServerSettings(max_num_seqs=2))
    two = serve(even, Plain(), **load, server=ServerSettings(max_num_seqs=2, replicas=2))
    assert two.requests["replica"].tolist() == [0, 1] * 24
    assert one.duration_s / two.duration_s == pytest.approx(2, rel=0.1)
    for replica in (0, 1):
        own = two.steps["replica"] == replica
        begin_s = two.steps["time_s"][own]
        assert (np.diff(begin_s) >= U - 1e-12).all()  # its steps do not overlap
        assert two.steps["batch"][own].max() <= 2


@pytest.mark.parametrize("router", ["least_loaded", "join_shortest_queue"])
def test_a_router_that_looks_keeps_queues_short(router):
    """Texts of 4 or 100 tokens in bursts: who looks does not queue behind the long ones."""
    texts = make_pool(np.random.default_rng(0), sequences=10, depths=3, lengths=[4] * 8 + [100] * 2)
    load = {
        "request_rate": 12.0,
        "burstiness": 0.3,
        "max_concurrency": 1,
        "num_prompts": 200,
        "seed": 1,
    }
    waited_s = {}
    for name in ("round_robin", router):
        server = ServerSettings(replicas=4, router=name)
        facts = serve(texts, Plain(), **load, server=server)
        waits = facts.requests["admitted_s"] - facts.requests["arrival_s"]
        waited_s[name] = waits.mean()
    assert waited_s[router] < 0.6 * waited_s["round_robin"]


def test_every_replica_has_a_policy_of_its_own(even):
    policy = Watched(2)
    facts = serve(
        even, policy, max_concurrency=4, num_prompts=12, server=ServerSettings(replicas=2)
    )
    assert len(policy.steps) == np.count_nonzero(facts.steps["replica"] == 0)


class ByClients(Policy):
    """Verifies 64 / clients nodes: tuned on the concurrency it is told."""

    def __init__(self) -> None:
        self.order, self.told = Watched().order, set()

    def allocate(self, step) -> np.ndarray:
        self.told.add(step.load.max_concurrency)
        return np.minimum(step.draft.size, 64 // step.load.max_concurrency)


def nodes(texts, **settings) -> set[int]:
    """Most nodes of a request in each step."""
    facts = serve(texts, ByClients(), **settings)
    return set(np.maximum.reduceat(facts.rounds["width"], np.flatnonzero(np.diff(
        facts.rounds["step"], prepend=-1))).tolist())  # fmt: skip


def test_a_replica_is_told_its_share_of_the_clients(even):
    """Four replicas at 64 clients verify what one server at 16 does: 4 nodes; at 64: 1."""
    four = nodes(even, max_concurrency=64, num_prompts=256, server=ServerSettings(replicas=4))
    assert max(four) == max(nodes(even, max_concurrency=16, num_prompts=64)) == 4
    assert max(nodes(even, max_concurrency=64, num_prompts=256)) == 1


@pytest.mark.parametrize(
    ("load", "server", "share"),
    [
        ({"max_concurrency": 10}, {"replicas": 4}, 3),  # 10 / 4, rounded up
        ({"max_concurrency": 10}, {"replicas": 4, "max_num_seqs": 2}, 2),
        ({"max_concurrency": 10}, {"max_num_seqs": 6}, 6),  # the other four wait
        ({"max_concurrency": 8, "request_rate": 9.0}, {"replicas": 4}, 8),  # a cap on each
        ({"max_concurrency": None, "request_rate": 9.0}, {"max_num_seqs": 5}, 5),
    ],
)
def test_the_share_is_no_more_than_a_replica_runs(even, load, server, share):
    policy = ByClients()
    serve(even, policy, **load, num_prompts=24, server=ServerSettings(**server))
    assert policy.told == {share}


# ---------------------------------------------------------------- lag


class Deepest(Policy):
    """Verifies as many nodes as the best request has of survival, and remembers what it saw."""

    def __init__(self, order) -> None:
        self.order, self.seen, self.answers, self.told = order, [], [], []

    def allocate(self, step) -> np.ndarray:
        self.seen.append(step)
        width = (step.draft.score >= np.log(0.3)).sum(axis=1)
        self.answers.append(width)
        return width

    def observe(self, outcome) -> None:
        self.told.append(outcome)


@pytest.mark.parametrize("lag", [1, 2])
def test_a_late_policy_decides_on_the_drafts_of_before(even, lag):
    """Its widths are those of the step `lag` before, where the same requests ran."""
    order = Watched().order
    policy = Deepest(order)
    load = {"max_concurrency": 2, "num_prompts": 8}
    facts = serve(even, policy, **load, server=ServerSettings(lag=lag))
    steps, rounds = facts.steps, facts.rounds
    count = len(steps["step"])
    assert len(policy.seen) == count
    for i in range(lag, count):
        seen = policy.seen[i].load
        assert seen.time_s == steps["time_s"][i - lag]
        now = rounds["request"][rounds["step"] == i]
        width = rounds["width"][rounds["step"] == i]
        was = dict(zip(seen.request.tolist(), policy.answers[i].tolist(), strict=True))
        rest = round(float(policy.answers[i].mean()))
        size = steps["batch"][i]
        expected = [was.get(request, rest) for request in now.tolist()]
        assert len(expected) == size
        assert (width <= np.array(expected)).all()  # cut where less is drafted now
    # Outcomes come as late, each once and in order.
    ends_s = (steps["time_s"] + steps["step_s"])[: count - lag]
    assert [outcome.time_s for outcome in policy.told] == pytest.approx(ends_s.tolist())


def test_no_lag_is_no_wrapper(even):
    load = {"max_concurrency": 3, "num_prompts": 12}
    facts = serve(even, Watched(3), **load)
    same = serve(even, Lagged(Watched(3), 0), **load)
    assert facts.rounds["width"].tolist() == same.rounds["width"].tolist()
    assert facts.duration_s == same.duration_s


def test_texts_do_not_depend_on_lag(even):
    load = {"max_concurrency": 2, "num_prompts": 8}
    results = [serve(even, Watched(3), **load, server=ServerSettings(lag=lag)) for lag in (0, 1, 2)]
    assert len({facts.requests["output_tokens"].sum() for facts in results}) == 1
    prompt = ConstantCost(prompt_token_s=U)
    assert serve(even, Watched(3), prompt, **load, server=ServerSettings(lag=1)).duration_s > 0
