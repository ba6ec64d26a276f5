"""The server against queueing theory: Lindley's recursion and closed forms.

Waits are compared at the arrival rate and the moments of service that were drawn. The numbers of
requests leave an error of 1 to 1.7 % (one standard deviation) with `mean_wait_s`.
"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.arrivals import Workload
from tests.queues import (
    OwnService,
    arriving,
    erlang_c_wait_s,
    gamma_wait_s,
    lindley,
    mean_wait_s,
    of_prompts,
    pollaczek_khinchine_s,
    served,
)
from tests.serving import STEP_S

LOADS = {0.3: 90_000, 0.6: 50_000, 0.8: 40_000}  # requests


def ones(count: int) -> np.ndarray:
    return np.ones(count, np.int64)


def waits(facts) -> np.ndarray:
    return facts.requests["admitted_s"] - facts.requests["arrival_s"]


def rate_of(work: Workload) -> float:
    return 1 / work.gap_s.mean()


# ---------------------------------------------------------------- Lindley's recursion, exactly


@pytest.mark.parametrize("burstiness", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("kind", ["steps", "prompts", "both", "texts"])
def test_one_server_is_lindleys_recursion(kind, burstiness):
    """Begins and ends of 600 services, to the last bit, whatever the services are made of."""
    count, rng = 600, np.random.default_rng(7)
    outputs = {
        "steps": 2 * ones(count),
        "prompts": ones(count),
        "both": 2 * ones(count),
        "texts": rng.integers(1, 12, count),
    }[kind]
    prompt_s = rng.exponential(1.0, count) * (kind in ("prompts", "both"))
    step_s = rng.exponential(1.0, count)
    work = arriving(
        0.8 / (prompt_s + step_s * (outputs - 1)).mean(), outputs, burstiness=burstiness
    )
    facts = served(work, OwnService(prompt_s, step_s))
    arrival_s = np.cumsum(work.gap_s)
    steps = [np.where(outputs > number, step_s, 0.0) for number in range(1, outputs.max())]
    begin_s, end_s = lindley(arrival_s, prompt_s, *steps)
    assert (begin_s > arrival_s).mean() > 0.2  # they do wait
    assert facts.requests["arrival_s"].tolist() == arrival_s.tolist()
    assert facts.requests["admitted_s"].tolist() == begin_s.tolist()
    assert facts.requests["first_token_s"].tolist() == (begin_s + prompt_s).tolist()
    assert facts.requests["finish_s"].tolist() == end_s.tolist()


def test_replicas_in_turn_are_queues_of_every_third_request():
    work = arriving(2.4, ones(3000))
    service_s = np.random.default_rng(8).exponential(1.0, 3000)
    facts = of_prompts(work, service_s, replicas=3)
    for replica in range(3):
        own = slice(replica, None, 3)
        assert set(facts.requests["replica"][own]) == {replica}
        begin_s, end_s = lindley(facts.requests["arrival_s"][own], service_s[own])
        assert facts.requests["admitted_s"][own].tolist() == begin_s.tolist()
        assert facts.requests["finish_s"][own].tolist() == end_s.tolist()


# ---------------------------------------------------------------- closed forms


def exponential(rng, count: int) -> np.ndarray:
    return rng.exponential(1.0, count)


def constant(rng, count: int) -> np.ndarray:
    return np.ones(count)


def rare_long(rng, count: int) -> np.ndarray:
    """One in ten takes 11 times as long: a squared coefficient of variation of 2.25."""
    return np.where(rng.random(count) < 0.1, 5.5, 0.5)


def m_m_1(rate: float, service_s: np.ndarray) -> float:
    """rho / (mu - lambda)."""
    service_rate = 1 / service_s.mean()
    return rate / service_rate / (service_rate - rate)


def m_d_1(rate: float, service_s: np.ndarray) -> float:
    """Half of what exponential services wait."""
    return rate / (2 * (1 - rate))


FORMS = [(exponential, m_m_1), (constant, m_d_1), (rare_long, pollaczek_khinchine_s)]


@pytest.mark.parametrize(("load", "count"), LOADS.items())
@pytest.mark.parametrize(("draw", "expected"), FORMS)
def test_waits_are_those_of_the_closed_form(draw, expected, load, count):
    """Poisson arrivals: M/M/1, M/D/1 and M/G/1 (Pollaczek-Khinchine)."""
    work = arriving(load, ones(count), seed=1)
    service_s = draw(np.random.default_rng(2), count)
    facts = of_prompts(work, service_s)
    rate = rate_of(work)
    wait_s, expected_s = mean_wait_s(waits(facts), service_s, work.gap_s), expected(rate, service_s)
    assert wait_s == pytest.approx(expected_s, rel=0.03)
    stay_s = facts.requests["finish_s"] - facts.requests["arrival_s"]
    stays_s = mean_wait_s(stay_s - service_s, service_s, work.gap_s) + service_s.mean()
    assert stays_s == pytest.approx(expected_s + service_s.mean(), rel=0.03)
    # Arrivals see time averages (PASTA): a share rho finds the server busy.
    assert (waits(facts) > 0).mean() == pytest.approx(rate * service_s.mean(), rel=0.03)


@pytest.mark.parametrize("load", LOADS)
def test_steps_of_those_times_are_the_same_queue(load):
    """Texts of two tokens whose one step takes the drawn time: M/M/1 again, to the last bit."""
    count = 3000
    work, texts = (arriving(load, outputs * ones(count), seed=1) for outputs in (1, 2))
    service_s = exponential(np.random.default_rng(2), count)
    prompts = of_prompts(work, service_s)
    steps = served(texts, OwnService(np.zeros(count), service_s))
    for name in ("arrival_s", "admitted_s", "finish_s"):
        assert steps.requests[name].tolist() == prompts.requests[name].tolist()


@pytest.mark.parametrize(("load", "count"), LOADS.items())
def test_texts_wait_as_in_m_g_1(load, count):
    """Texts of 1, 2 and 3 tokens at a constant step: services of 0, 1 and 2 steps."""
    count //= 2  # these run a step for every token
    outputs = np.random.default_rng(5).integers(1, 4, count)
    service_s = (outputs - 1) * STEP_S
    work = arriving(load / STEP_S, outputs, seed=5)
    facts = served(work, OwnService(np.zeros(count), np.full(count, STEP_S)))
    wait_s = mean_wait_s(waits(facts), service_s, work.gap_s)
    assert wait_s == pytest.approx(pollaczek_khinchine_s(rate_of(work), service_s), rel=0.03)


@pytest.mark.parametrize("burstiness", [0.5, 4.0])
def test_bursts_wait_as_in_g_m_1(burstiness):
    """Gamma gaps: squared coefficients of variation of 2 and 1/4."""
    work = arriving(0.7, ones(60_000), burstiness=burstiness, seed=6)
    service_s = np.random.default_rng(6).exponential(1.0, 60_000)
    facts = of_prompts(work, service_s)
    wait_s = mean_wait_s(waits(facts), service_s, work.gap_s)
    expected_s = gamma_wait_s(rate_of(work), burstiness, 1 / service_s.mean())
    assert wait_s == pytest.approx(expected_s, rel=0.03)


def test_routers_between_one_line_and_taking_turns():
    """Three replicas at 0.8: no router beats one line for all; taking turns is E_3/M/1, and worse
    than joining the shortest queue."""
    count, rate = 60_000, 2.4
    work = arriving(rate, ones(count), seed=7)
    service_s = np.random.default_rng(7).exponential(1.0, count)
    turns = of_prompts(work, service_s, replicas=3)
    shortest = of_prompts(work, service_s, replicas=3, router="join_shortest_queue")
    each_s = []
    for replica in range(3):
        own = slice(replica, None, 3)
        gap_s = np.diff(turns.requests["arrival_s"][own], prepend=0.0)
        each_s.append(mean_wait_s(waits(turns)[own], service_s[own], gap_s))
    service_rate = 1 / service_s.mean()
    expected_s = gamma_wait_s(rate_of(work) / 3, 3.0, service_rate)  # Erlang gaps of three stages
    assert np.mean(each_s) == pytest.approx(expected_s, rel=0.03)
    line_s = erlang_c_wait_s(3, rate_of(work), service_rate)
    assert 1.05 * line_s < waits(shortest).mean() < 0.7 * waits(turns).mean()


def test_the_shortest_queue_is_joined():
    """Where fewest requests wait, are read or are in a step; of equals the first."""
    count = 2000
    work = arriving(2.4, 2 * ones(count), seed=8)
    prompt_s, step_s = np.random.default_rng(8).exponential(0.5, (2, count))
    facts = served(work, OwnService(prompt_s, step_s), replicas=3, router="join_shortest_queue")
    finish_s, replica = facts.requests["finish_s"], facts.requests["replica"]
    for request, at_s in enumerate(facts.requests["arrival_s"].tolist()):
        inside = np.flatnonzero(finish_s[:request] > at_s)
        assert replica[request] == np.argmin(np.bincount(replica[inside], minlength=3))
