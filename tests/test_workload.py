"""Arrivals: the order of texts, the gaps of an open loop, the clients of a closed one."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.arrivals import gaps, make_workload
from simulator.engine.settings import Settings
from tests.serving import STEP_S, Plain, serve
from tests.synthetic import make_geometric


@pytest.fixture(scope="module")
def recording():
    return make_geometric(0.5, np.random.default_rng(0), sequences=9, length=12, depths=3)


def workload(recording, **settings):
    return make_workload(Settings(**settings), recording, recording.sequences_of("report"))


def test_requests_cycle_through_one_shuffle_of_the_split(recording):
    sequence = workload(recording, num_prompts=10).sequence
    report = recording.sequences_of("report").tolist()  # every third: 2, 5, 8
    assert sorted(sequence[:3].tolist()) == report == [2, 5, 8]
    assert sequence[3:6].tolist() == sequence[6:9].tolist() == sequence[:3].tolist()
    assert sequence[9] == sequence[0]


def test_the_order_depends_on_the_seed_alone(recording):
    sequences = np.arange(9)

    def order(**settings):
        return make_workload(Settings(num_prompts=9, **settings), recording, sequences).sequence

    base = order(seed=1)
    assert (base == order(seed=1, max_concurrency=3)).all()
    assert (base == order(seed=1, request_rate=2.0, burstiness=0.3)).all()
    assert (base != order(seed=2)).any()


def test_arrivals_do_not_depend_on_how_many_there_are(recording):
    few = workload(recording, request_rate=5.0, num_prompts=20, burstiness=2.0)
    many = workload(recording, request_rate=5.0, num_prompts=40, burstiness=2.0, max_concurrency=3)
    assert (few.gap_s == many.gap_s[:20]).all()


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_asked_rate_and_variation(burstiness):
    """Gamma of shape k and mean m: standard deviation m / sqrt(k)."""
    count, rate = 100_000, 8.0
    gap_s = gaps(rate, burstiness, count, np.random.default_rng(3))
    spread = burstiness**-0.5
    assert gap_s.mean() * rate == pytest.approx(1, abs=4 * spread / count**0.5)
    # Relative standard error of a gamma sample's deviation: sqrt((2 + 6 / k) / (4 n)), 0.8 % for
    # k = 1/4.
    assert gap_s.std() / gap_s.mean() == pytest.approx(spread, rel=0.03)
    assert gap_s.min() < 0.1 / rate  # not clipped from below


def test_open_loop_requests_arrive_when_their_gaps_are_over(recording):
    settings = {"request_rate": 50.0, "num_prompts": 12, "seed": 4, "max_concurrency": None}
    facts = serve(recording, Plain(), **settings)
    expected = np.cumsum(make_workload(Settings(**settings), recording, np.arange(9)).gap_s)
    assert facts.requests["arrival_s"] == pytest.approx(expected, rel=1e-12)
    assert not facts.requests["warmup"].any()


def test_first_requests_of_clients_start_anywhere_in_their_text(recording):
    work = workload(recording, max_concurrency=400, num_prompts=450)
    anchors = recording.anchor_counts[work.sequence]
    assert work.warmup.tolist() == [True] * 400 + [False] * 50
    assert (work.first_output[400:] == 0).all()
    assert ((work.first_output >= 0) & (work.first_output < anchors)).all()
    assert set(work.first_output[:400]) == set(range(11))  # L = 12: roots 0..10


def test_a_client_sends_its_next_request_when_its_last_one_ends(recording):
    facts = serve(recording, Plain(), max_concurrency=3, num_prompts=20)
    arrival_s, finish_s = facts.requests["arrival_s"], np.sort(facts.requests["finish_s"])
    assert (arrival_s[:3] == 0).all()
    assert arrival_s[3:].tolist() == finish_s[:17].tolist()
    # With room for every client nobody waits, and a slot is refilled before the next step.
    assert (facts.requests["admitted_s"] == arrival_s).all()
    assert set(np.diff(facts.steps["time_s"])) == {STEP_S}


@pytest.mark.parametrize(
    ("settings", "requests"),
    [
        ({"max_concurrency": 1}, 64),
        ({"max_concurrency": 256}, 1536),
        ({"max_concurrency": 256, "request_rate": 3.0}, 256),
        ({"max_concurrency": 4, "num_prompts": 7}, 7),
    ],
)
def test_number_of_requests(settings, requests):
    assert Settings(**settings).requests == requests
