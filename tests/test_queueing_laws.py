"""The server against queueing theory: Lindley's recursion, closed forms, and closed loops.

Waits are compared at the arrival rate and the moments of service that were drawn. The numbers of
requests leave an error of 1 to 1.7 % (one standard deviation) with `mean_wait_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import factorial

import numpy as np
import pytest
import simpy

from simulator.cost import Source, StepTime
from simulator.engine.arrivals import Workload, make_workload
from simulator.engine.fleet import Fleet
from simulator.engine.settings import ServerSettings, Settings
from simulator.results.facts import Facts
from simulator.results.ledger import Ledger
from simulator.results.window import find_window
from tests.serving import STEP_S, ConstantCost, Plain, accounts_of, serve
from tests.synthetic import make_geometric

LOADS = {0.3: 90_000, 0.6: 50_000, 0.8: 40_000}  # requests


def ones(count: int) -> np.ndarray:
    return np.ones(count, np.int64)


def waits(facts) -> np.ndarray:
    return facts.requests["admitted_s"] - facts.requests["arrival_s"]


# ---------------------------------------------------------------- one server as a queue


STRIDE = 64  # tokens between the contexts of two requests, more than any text here has
TEXT = make_geometric(0.5, np.random.default_rng(0), sequences=1, length=STRIDE, depths=1)


class OwnService:
    """Every request has a time of its own for its prompt and for each of its steps: (N,) s."""

    def __init__(self, prompt_s: Sequence[float], step_s: Sequence[float]) -> None:
        self.prompt_s, self.step_s = list(prompt_s), list(step_s)

    def prefill_s(self, tokens: int) -> float:
        return self.prompt_s[tokens // STRIDE]

    def step(self, packed, context, **_) -> StepTime:
        (tokens,) = context.tolist()  # one request at a time
        return StepTime(0.0, self.step_s[tokens // STRIDE], 0.0, Source.MEASURED)


def arriving(
    rate: float, outputs: np.ndarray, *, burstiness: float = 1.0, seed: int = 0
) -> Workload:
    """Requests at the simulator's own arrival times, of (N,) output tokens."""
    number = np.arange(len(outputs))
    settings = Settings(
        request_rate=rate, burstiness=burstiness, num_prompts=len(outputs), seed=seed
    )
    work = make_workload(settings, TEXT, np.arange(1))
    context = number * STRIDE + 1
    return replace(work, context=context, prompt_tokens=context, output_tokens=outputs)


def served(work: Workload, cost: OwnService, **server) -> Facts:
    """The run of servers that take one request at a time."""
    ledger = Ledger(work)
    rules = ServerSettings(**server)
    Fleet(simpy.Environment(), Plain(), TEXT, cost, work, 1, None, ledger, rules).run()
    facts = ledger.facts()
    accounts_of(facts).check()
    return facts


def of_prompts(work: Workload, service_s: np.ndarray, **server) -> Facts:
    """Services that prompts take; of texts of one token, so that no step is run."""
    return served(work, OwnService(service_s, service_s * np.nan), **server)


def lindley(arrival_s: np.ndarray, *parts_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of services, first come first served (Lindley 1952): (N,) and (N,) s.

    parts_s: (N, P) arrays of what each service is made of, one part after the other.
    """
    begin_s, end_s, free_s = [], [], 0.0
    for at_s, parts in zip(arrival_s.tolist(), np.column_stack(parts_s).tolist(), strict=True):
        free_s = max(at_s, free_s)
        begin_s.append(free_s)
        for part_s in parts:
            free_s += part_s
        end_s.append(free_s)
    return np.array(begin_s), np.array(end_s)


def mean_wait_s(wait_s: np.ndarray, service_s: np.ndarray, gap_s: np.ndarray) -> float:
    """Mean of (N,) waits in the order of arrival, with a control variate.

    What a request waits does not depend on its own service or on the gap behind it, so that their
    sample covariance has mean 0. Most of the noise of busy queues is in it: squared, Lindley's
    recursion says that the mean wait errs by the covariance over the mean of gap - service.
    """
    drift_s = service_s[:-1] - gap_s[1:]  # (N - 1,)
    return wait_s.mean() + np.cov(wait_s[:-1], drift_s)[0, 1] / drift_s.mean()


def pollaczek_khinchine_s(rate: float, service_s: np.ndarray) -> float:
    """Mean wait of M/G/1 with the services' own first two moments."""
    return rate * np.mean(service_s**2) / (2 * (1 - rate * service_s.mean()))


def gamma_wait_s(rate: float, shape: float, service_rate: float) -> float:
    """Mean wait of G/M/1 with gamma gaps (Kleinrock 1975, 6.4): s / (mu (1 - s)).

    s is the root below 1 of s = A(mu (1 - s)), A the Laplace transform of the gaps.
    """
    root = 0.5
    for _ in range(10_000):
        root = (1 + service_rate * (1 - root) / (rate * shape)) ** -shape
    return root / (service_rate * (1 - root))


def erlang_c_wait_s(servers: int, rate: float, service_rate: float) -> float:
    """Mean wait of M/M/c: all wait in one line (Erlang's C formula)."""
    load = rate / service_rate
    last = load**servers / factorial(servers) / (1 - load / servers)
    waiting = last / (sum(load**k / factorial(k) for k in range(servers)) + last)
    return waiting / (servers * service_rate - rate)


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


def rare_long(rng, count: int) -> np.ndarray:
    """One in ten takes 11 times as long: a squared coefficient of variation of 2.25."""
    return np.where(rng.random(count) < 0.1, 5.5, 0.5)


def m_m_1(rate: float, service_s: np.ndarray) -> float:
    """rho / (mu - lambda)."""
    service_rate = 1 / service_s.mean()
    return rate / service_rate / (service_rate - rate)


FORMS = {
    "exponential": (lambda rng, count: rng.exponential(1.0, count), m_m_1),
    # half of what exponential services wait
    "constant": (lambda rng, count: np.ones(count), lambda rate, _: rate / (2 * (1 - rate))),
    "rare long": (rare_long, pollaczek_khinchine_s),
}


@pytest.mark.parametrize(("load", "count"), LOADS.items())
@pytest.mark.parametrize("name", FORMS)
def test_waits_are_those_of_the_closed_form(name, load, count):
    """Poisson arrivals: M/M/1, M/D/1 and M/G/1 (Pollaczek-Khinchine)."""
    draw, expected = FORMS[name]
    work = arriving(load, ones(count), seed=1)
    service_s = draw(np.random.default_rng(2), count)
    facts = of_prompts(work, service_s)
    rate = 1 / work.gap_s.mean()
    wait_s, expected_s = mean_wait_s(waits(facts), service_s, work.gap_s), expected(rate, service_s)
    assert wait_s == pytest.approx(expected_s, rel=0.03)
    stay_s = facts.requests["finish_s"] - facts.requests["arrival_s"]
    stays_s = mean_wait_s(stay_s - service_s, service_s, work.gap_s) + service_s.mean()
    assert stays_s == pytest.approx(expected_s + service_s.mean(), rel=0.03)
    # Arrivals see time averages (PASTA): a share rho finds the server busy.
    assert (waits(facts) > 0).mean() == pytest.approx(rate * service_s.mean(), rel=0.03)


@pytest.mark.parametrize(("load", "count"), [(0.6, 25_000), (0.8, 20_000)])
def test_texts_wait_as_in_m_g_1(load, count):
    """Texts of 1, 2 and 3 tokens at a constant step: services of 0, 1 and 2 steps."""
    outputs = np.random.default_rng(5).integers(1, 4, count)
    service_s = (outputs - 1) * STEP_S
    work = arriving(load / STEP_S, outputs, seed=5)
    facts = served(work, OwnService(np.zeros(count), np.full(count, STEP_S)))
    wait_s = mean_wait_s(waits(facts), service_s, work.gap_s)
    assert wait_s == pytest.approx(
        pollaczek_khinchine_s(1 / work.gap_s.mean(), service_s), rel=0.03
    )


@pytest.mark.parametrize("burstiness", [0.5, 4.0])
def test_bursts_wait_as_in_g_m_1(burstiness):
    """Gamma gaps: squared coefficients of variation of 2 and 1/4."""
    work = arriving(0.7, ones(60_000), burstiness=burstiness, seed=6)
    service_s = np.random.default_rng(6).exponential(1.0, 60_000)
    facts = of_prompts(work, service_s)
    wait_s = mean_wait_s(waits(facts), service_s, work.gap_s)
    expected_s = gamma_wait_s(1 / work.gap_s.mean(), burstiness, 1 / service_s.mean())
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
    expected_s = gamma_wait_s(
        1 / work.gap_s.mean() / 3, 3.0, service_rate
    )  # Erlang gaps of three stages
    assert np.mean(each_s) == pytest.approx(expected_s, rel=0.03)
    line_s = erlang_c_wait_s(3, 1 / work.gap_s.mean(), service_rate)
    assert 1.05 * line_s < waits(shortest).mean() < 0.7 * waits(turns).mean()


# ---------------------------------------------------------------- closed loops


def texts_of_length(length: int, sequences: int = 4):
    """Texts of `length` outputs behind prompts of 5 tokens."""
    rng = np.random.default_rng(2)
    return make_geometric(0.6, rng, sequences=sequences, length=length, depths=3)


@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("length", [2, 9, 40])
@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("prompt_token_s", [0.0, STEP_S / 16])
def test_slots_turn_over_in_one_period(slots, length, turns, prompt_token_s):
    """C slots, prompts that hold up the batch for P each: a period of (L - 1) T + C P, exactly.

    Every slot writes a text per period. With m C clients a request stays m periods (machine
    repair at full use; interactive response time law: R = clients / throughput). Free prompts
    leave C / T tokens per second.
    """
    cost = ConstantCost(prompt_token_s=prompt_token_s)
    clients = turns * slots
    load = {"max_concurrency": clients, "num_prompts": (6 + turns) * clients}
    facts = serve(texts_of_length(length), Plain(), cost, **load, max_num_seqs=slots)
    period_s = (length - 1) * STEP_S + slots * 5 * prompt_token_s
    window = find_window(facts)
    steps, requests = facts.steps, facts.requests
    if not prompt_token_s:
        committed = steps["committed"][window.steps(facts)].sum()
        assert committed / window.seconds == slots / STEP_S
    # Behind the first texts of every slot, which start in the middle, and before clients go away.
    begin_s, last_s = requests["finish_s"][2 * clients], requests["arrival_s"].max()
    steady = (steps["time_s"] >= begin_s) & (steps["time_s"] <= last_s)
    time_s = steps["time_s"][steady]
    assert len(time_s) > 2 * (length - 1)
    assert set(time_s[length - 1 :] - time_s[: 1 - length]) == {period_s}
    inside = window.requests(facts) & (requests["arrival_s"] >= begin_s)
    assert np.count_nonzero(inside) > clients
    assert set((requests["finish_s"] - requests["arrival_s"])[inside]) == {turns * period_s}
