"""Host terms: what a round pays, and the fit of measured rounds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.cli.main import main
from simulator.cost import HostOverhead, StepCost, build_step_cost, find_profile
from simulator.cost.host import TERMS, TREE_TERMS, fit_host, term_counts
from simulator.cost.price import host_s

KNOWN = HostOverhead(
    round_s=2e-3,
    node_s=1e-5,
    tree_step_s=5e-4,
    plain_s=1e-3,
    request_s=1e-4,
    ordered_node_s=3e-6,
    plain_request_s=2e-5,
    fed_step_s=3e-4,
    catch_up_token_s=1.5e-5,
)


def random_rounds(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drafted, requests = rng.random(count) < 0.7, rng.integers(1, 64, count)
    ordered = requests * rng.integers(1, 127, count) * drafted
    return {
        "drafted": drafted,
        "requests": requests,
        "nodes": (ordered * rng.random(count)).astype(int),
        "ordered": ordered,
        "tree": drafted & (rng.random(count) < 0.5),
        "fed": rng.random(count) < 0.5,
        "deferred": rng.integers(0, 300, count),
    }


def seen(host: HostOverhead, rounds: dict[str, np.ndarray]) -> np.ndarray:
    """Host seconds of every round, as a step is charged."""
    lines = [dict(zip(rounds, line)) for line in zip(*(v.tolist() for v in rounds.values()))]
    catch_up_s = [host.catch_up_token_s * x.pop("deferred") * x["drafted"] for x in lines]
    found_s = [host_s(host, device_s=0.0, **line) for line in lines]
    return np.array(found_s) + np.array(catch_up_s)


def test_terms_are_charged_per_request_and_per_ordered_node():
    """3 requests, 12 nodes verified of 381 ordered: 1 + 3 x 0.1 + 12 x 0.01 + 381 x 0.001 ms."""
    host = HostOverhead(
        round_s=1e-3, request_s=1e-4, node_s=1e-5, ordered_node_s=1e-6, plain_request_s=2e-4
    )
    cost = StepCost(find_profile("b300"), host=host)
    packed, context = np.array([1, 3, 11]), np.full(3, 8192)
    answer = cost.step(packed, context, drafted=True, tree=False, ordered=381)
    assert answer.host_s == pytest.approx(1e-3 + 3e-4 + 12e-5 + 381e-6)
    unordered = cost.step(packed, context, drafted=True, tree=False)
    assert unordered.host_s == pytest.approx(1e-3 + 3e-4 + 12e-5)
    plain = cost.step(np.ones(3, int), context, drafted=False, tree=False)
    assert plain.host_s == pytest.approx(3 * 2e-4)


def test_a_drafter_that_rested_reads_what_it_missed():
    """40 tokens at 0.1 ms, on the draft's time whatever overlaps; plain steps pay for keeping."""
    host = HostOverhead(plain_s=1e-3, fed_step_s=2e-3, catch_up_token_s=1e-4)
    cost = StepCost(find_profile("b300"), host=host)
    one, context = np.ones(4, int), np.full(4, 8192)
    rested = cost.step(one, context, drafted=True, tree=False, deferred=40)
    steady = cost.step(one, context, drafted=True, tree=False)
    assert rested.draft_s - steady.draft_s == pytest.approx(4e-3)
    assert rested.host_s == steady.host_s == 0.0
    fed = cost.step(one, context, drafted=False, tree=False, fed=True, deferred=40)
    assert (fed.draft_s, fed.host_s) == (0.0, pytest.approx(3e-3))


def test_a_configuration_may_name_every_term():
    values = {name: (i + 1) * 1e-4 for i, name in enumerate(TERMS)}
    cost = build_step_cost({"profile": "b300", "host": values})
    assert {name: getattr(cost.host, name) for name in TERMS} == values
    others = {"bubble_s", "launch_s", "overlap"}  # not fitted
    assert set(HostOverhead.model_fields) == {*TERMS, *TREE_TERMS, *others}


def test_the_command_line_may_name_a_new_term(here, recorded):
    """7 nodes of a chain are ordered and 3 verified, for one request: 7 x 2 + 3 x 0.5 ms."""
    words = [f"trace={recorded}", "policy=fixed_chain", "policy.length=3", "max_concurrency=1"]
    terms = ["+latency.host.ordered_node_s=2e-3", "latency.host.node_s=5e-4"]
    assert main([*words, *terms, "num_prompts=4", "hydra.run.dir=out"]) == 0
    summary = json.loads((here / "out/summary.json").read_text())
    assert summary["step_ms"]["host"] == pytest.approx(15.5)
    assert summary["latency"]["host"]["ordered_node_s"] == 2e-3


def test_counts_times_terms_are_what_a_step_is_charged():
    rounds = random_rounds(50)
    counts = term_counts(**rounds)
    charged = sum(getattr(KNOWN, name) * count for name, count in counts.items())
    assert seen(KNOWN, rounds) == pytest.approx(charged, rel=1e-12)


@pytest.mark.parametrize("relative", [False, True])
def test_all_seven_terms_are_recovered(relative):
    rounds = random_rounds(200)
    device_s = np.random.default_rng(1).uniform(0.002, 0.04, 200)
    host = fit_host(
        device_s + seen(KNOWN, rounds), device_s, term_counts(**rounds), relative=relative
    )
    for name in TERMS:
        assert getattr(host, name) == pytest.approx(getattr(KNOWN, name), rel=1e-6)


def test_relative_weighs_a_short_round_as_much_as_a_long_one():
    """One constant for rounds of 1 s and 10 s that leave 0.1 s and 2 s.

    Plain: their mean, 1.05. Relative to the device's 0.9 s and 8 s: minimise (0.1 - x)^2 / 0.81 +
    (2 - x)^2 / 64, so x = (0.1 / 0.81 + 2 / 64) / (1 / 0.81 + 1 / 64).
    """
    round_s, left_s = np.array([1.0, 10.0]), np.array([0.1, 2.0])
    terms = {"round_s": np.ones(2)}
    assert fit_host(round_s, round_s - left_s, terms).round_s == pytest.approx(1.05)
    relative = fit_host(round_s, round_s - left_s, terms, relative=True)
    assert relative.round_s == pytest.approx((0.1 / 0.81 + 2 / 64) / (1 / 0.81 + 1 / 64))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.booleans())
@example(103, 5, True)  # whose least squares leave a term at -7e-18
def test_the_fit_is_the_non_negative_optimum(seed, width, relative):
    """Karush-Kuhn-Tucker: no term above 0 has a slope, no term at 0 would gain by growing."""
    rng = np.random.default_rng(seed)
    names = TERMS[:width]
    counts, left_s = rng.random((12, width)) * 3, rng.normal(size=12)
    device_s = rng.uniform(0.5, 10, 12)
    terms = dict(zip(names, counts.T))
    host = fit_host(device_s + left_s, device_s, terms, relative=relative)
    found = np.array([getattr(host, name) for name in names])
    weight = 1 / device_s if relative else np.ones(12)
    rest = (left_s - counts @ found) * weight
    slope = (counts * weight[:, None]).T @ rest
    assert (found >= 0).all()
    assert (slope <= 1e-9).all()
    assert np.abs(slope[found > 0]) == pytest.approx(0, abs=1e-9)


def test_an_unknown_term_is_refused():
    with pytest.raises(ValueError, match="unknown key latency.host.node_ms; accepted: "):
        fit_host(np.ones(2), np.zeros(2), {"node_ms": np.ones(2)})
