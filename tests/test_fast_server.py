"""Compiled rounds against the ordinary server: the same job, equal to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.engine.arrivals import LazyWorkload, make_workload
from simulator.engine.compiled import server
from simulator.engine.compiled.server import FastServer
from simulator.engine.settings import ServerSettings, Settings
from simulator.orders.specs import OrderError
from simulator.policies.cast import Cast
from simulator.policies.checks import verifies_trees
from simulator.policies.fixed_chain import FixedChain
from simulator.policies.priced_survival import PricedSurvival
from simulator.policies.treespark import TreeSpark
from simulator.policy import Policy
from simulator.results.facts import Facts
from tests.fast_cases import (
    HOST,
    POLICIES,
    assert_equal,
    cost_of,
    fitted,
    serve_both,
    tables_of,
)
from tests.synthetic import make_geometric, make_hidden, make_pool

FEW = ServerSettings(max_num_seqs=16)
LENGTHS = [1, 2, 9, 14, 20, 5, 11, 1, 17, 8, 30, 3]


@pytest.fixture(scope="module")
def mixed():
    """Twelve texts, two of one token; orders of every anchor are built once."""
    recording = make_hidden(
        np.random.default_rng(3), sequences=12, depths=5, lengths=LENGTHS, noise=0.5
    )
    return recording, tables_of(recording)


@pytest.fixture(scope="module")
def drawn():
    """The same above temperature 0."""
    recording = make_pool(
        np.random.default_rng(4), sequences=9, depths=4, lengths=LENGTHS[:9], temperature=0.8
    )
    return recording, tables_of(recording)


def same(place, policy: str | Policy, cost=None, chunk=1, **load) -> Facts:
    """The facts of both servers, which are equal."""
    recording, tables = place
    policy = POLICIES[policy]() if isinstance(policy, str) else policy
    load = {"num_prompts": 50} | load
    facts, compiled = serve_both(recording, policy, cost or cost_of(), tables, chunk, **load)
    assert_equal(facts, compiled)
    return facts


@pytest.mark.parametrize("clients", [1, 3, 16, 64])
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_with_rules(mixed, name, clients):
    for seed in (0, 1):
        load = {"max_concurrency": clients, "num_prompts": 3 * clients + 20, "seed": seed}
        assert len(same(mixed, name, **load).rounds["step"]) > 50


@pytest.mark.parametrize(
    "profile", ["mi355x", "small_pair_semi_cpu", "h100_sxm_qwen3_8b_table6", "a6000_qwen3_8b"]
)
@pytest.mark.parametrize("packing", ["ragged", "dense"])
@pytest.mark.parametrize(
    "name", ["batch_schedule", "cast", "treespark_arms", "static_widths", "priced_survival"]
)
def test_profiles_with_contexts_host_terms_and_prefill(mixed, profile, packing, name):
    cost = cost_of(profile, packing=packing, host=HOST, draft_steps=2)
    for clients in (1, 7, 20):
        same(mixed, name, cost, max_concurrency=clients, num_prompts=60, seed=clients)


def test_a_step_whose_trees_are_all_empty_verifies_none(mixed):
    policy = POLICIES["treespark_high"]()
    steps = same(mixed, policy, cost_of(host=HOST), max_concurrency=1).steps
    assert verifies_trees(mixed[1](policy.rule(1).order))
    assert (steps["drafted"] & (steps["draft_nodes"] == 0)).any()
    assert (steps["draft_nodes"] > 1).any()


@pytest.mark.parametrize("overlap", [False, True])
def test_eager_launches_cliffs_and_overlap(mixed, overlap):
    cliffs = [
        {"above": 4, "factor": 1.25, "per": "request"},
        {"above": 40, "factor": 1.5, "add_ms": 0.3, "per": "step"},
    ]
    cost = cost_of("b300", mode="eager", cliffs=cliffs, host=HOST.with_(overlap=overlap))
    for name in ("cast", "batch_schedule", "autoregressive", "priced_survival", "priced_lambda"):
        assert (same(mixed, name, cost, max_concurrency=14).steps["host_s"] > 0).any()


@pytest.mark.parametrize("burstiness", [0.02, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.5, 40.0, 1e4])
@pytest.mark.parametrize("name", ["autoregressive", "cast", "priced_survival"])
@pytest.mark.parametrize("profile", ["b300", "small_pair_semi_cpu"])
def test_open_loops(mixed, rate, burstiness, name, profile):
    """Idle and overloaded; burstiness .02 makes many come at the very same instant."""
    load = {"request_rate": rate, "burstiness": burstiness, "server": FEW}
    for limit, seed in ((None, 0), (3, 1), (1, 2)):
        cost = cost_of(profile, host=HOST)
        facts = same(mixed, name, cost, 40, **load, max_concurrency=limit, seed=seed)
        if rate > 1e3 and limit:
            assert facts.steps["queued"].max() > 10


@pytest.mark.parametrize("profile", ["b300", "small_pair_semi_cpu"])
def test_more_clients_than_slots(mixed, profile):
    load = {"max_concurrency": 9, "server": ServerSettings(max_num_seqs=4), "num_prompts": 60}
    for name in ("cast", "treespark", "priced_ratio"):
        assert same(mixed, name, cost_of(profile), **load).steps["queued"].max() == 5


@pytest.mark.parametrize("sizes", [(1, 8, 20), (2, 64)])
@pytest.mark.parametrize("profile", ["b300", "h100_sxm_qwen3_8b_table6"])
@pytest.mark.parametrize("name", ["cast", "priced_survival"])
def test_captured_sizes_of_a_deployment(mixed, sizes, profile, name):
    same(mixed, name, cost_of(profile, graph_sizes=sizes, host=HOST), max_concurrency=7)


@pytest.mark.parametrize("name", ["treespark", "treespark_arms", "ddtree", "cast"])
def test_sampled_drafts(drawn, name):
    same(drawn, name, max_concurrency=5)


def test_prefill_delays_one_token_requests_and_their_successors(mixed):
    """Clients whose text is one token long send again while others are prefilled."""
    cost = cost_of("small_pair_semi_cpu")
    requests = same(mixed, "fixed_chain", cost, max_concurrency=4, seed=2).requests
    single = (requests["rounds"] == 0) & (requests["first_token_s"] == requests["finish_s"])
    assert single.sum() >= 4
    assert (requests["first_token_s"] > requests["admitted_s"]).all()
    assert (requests["admitted_s"] > requests["arrival_s"]).any()  # they wait for a prefill


def test_only_one_token_requests():
    recording = make_geometric(0.5, np.random.default_rng(0), sequences=6, length=1, depths=3)
    assert len(same((recording, None), "fixed_chain", max_concurrency=3).steps["step"]) == 0


@pytest.mark.parametrize("chunk", [1, 100, 1 << 16])
@pytest.mark.parametrize("block", [1, 7])
def test_where_chunks_and_blocks_end_changes_nothing(mixed, monkeypatch, chunk, block):
    monkeypatch.setattr(server, "AT_ONCE", block)
    same(mixed, "cast", None, chunk, max_concurrency=6)
    same(mixed, "treespark", cost_of("small_pair_semi_cpu"), chunk, max_concurrency=6)


class Counting:
    """A ledger that keeps sums alone."""

    def __init__(self) -> None:
        self.rounds = self.committed = self.ended = self.largest = 0

    def times(self, name: str, request: np.ndarray, time_s: np.ndarray) -> None:
        self.ended += len(request) if name == "finish_s" else 0

    def block(self, steps, rounds) -> None:
        self.rounds += len(rounds["request"])
        self.committed += int(rounds["committed"].sum())
        self.largest = max(self.largest, len(rounds["request"]))
        assert int(steps["batch"].sum()) == len(rounds["request"])


def test_many_requests_are_pulled_as_they_come():
    """120,000 requests of 12 outputs, from a workload that forgets them: 11 behind each prefill."""
    recording = make_geometric(0.6, np.random.default_rng(1), sequences=9, length=12, depths=3)
    load = Settings(max_concurrency=32, num_prompts=120_000)
    tables, ledger, told = tables_of(recording), Counting(), []
    workload = LazyWorkload(load, recording, np.arange(9))
    policy = fitted(FixedChain(3), recording, cost_of(), 32, tables)
    parts = (policy, recording, cost_of(), workload, 32, tables, ledger, told.append)
    FastServer(*parts).run()
    first = make_workload(load, recording, np.arange(9)).first_output
    assert ledger.committed == 11 * 120_000 - first.sum()
    assert ledger.ended == 120_000 == told[-1]
    assert told == sorted(told)
    assert ledger.largest <= 1 << 16


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 14), min_size=6, max_size=9),
    kind=st.sampled_from(["hidden", "pool"]),
    profile=st.sampled_from(["b300", "small_pair_semi_cpu", "mi355x", "h100_nvl_qwen3_8b"]),
    name=st.sampled_from(
        ["cast", "cast_one", "cast_all", "treespark", "batch_schedule", "priced_survival"]
    ),
    clients=st.integers(1, 12),
    requests=st.integers(1, 30),
    host=st.booleans(),
)
def test_random_recordings(seed, lengths, kind, profile, name, clients, requests, host):
    """Small vocabularies in float16, whose scores tie; texts of one token and of a few."""
    make = {"hidden": make_hidden, "pool": make_pool}[kind]
    lengths = [max(4, length) if i < 6 else length for i, length in enumerate(lengths)]
    recording = make(
        np.random.default_rng(seed),
        sequences=len(lengths),
        depths=4,
        lengths=lengths,
        dtype="float16",
        vocab=12,
    )
    cost = cost_of(profile, host=HOST if host else None)
    load = {"max_concurrency": clients, "num_prompts": requests, "seed": seed}
    try:
        both = serve_both(recording, POLICIES[name](), cost, **load)
    except OrderError:  # a calibration that falls with the score, which no policy takes
        assume(False)
    assert_equal(*both)


def test_shipped_policies_at_the_shipped_recording():
    """Real scores, at the batch sizes where budgets and ladders act."""
    from simulator.engine.inputs import choose_sequences, load_recording
    from simulator.engine.run import tables_of as cached_tables

    trace = {"recording": "small_semi_t0"}
    recording = load_recording(trace)
    tables = cached_tables(recording)
    assert len(choose_sequences(trace, recording)) > 1
    for policy, clients in ((Cast(), 24), (TreeSpark(), 6), (PricedSurvival(), 9)):
        same((recording, tables), policy, None, 1 << 12, max_concurrency=clients, num_prompts=60)
