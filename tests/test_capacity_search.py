"""Which loads a search tries: brackets and bisection on made-up servers, steadiness by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.studies.capacity.search import Found, Scale, search
from simulator.studies.runs import GROWTH, trend
from traces.common.intervals import over_seeds

RATES = Scale(0.001, 1e6, 0.02, whole=False)
CLIENTS = Scale(1, 256, 0.02, whole=True)


def found(scale: Scale, met, start: float, near: bool = False) -> tuple[Found, list[float]]:
    """What a search finds on a server that meets loads by `met`, and what it tried."""
    asking, tried = search(scale, start, near), []
    load = next(asking)
    while True:
        tried.append(load)
        try:
            load = asking.send(met(load))
        except StopIteration as end:
            return end.value, tried


@given(st.floats(0.002, 9e5), st.floats(0.001, 1e6), st.booleans())
def test_a_rate_is_bracketed_to_the_tolerance(limit, start, near):
    one, tried = found(RATES, lambda load: load <= limit, float(f"{start:.6g}"), near)
    assert one.low <= limit < one.high
    assert one.high <= one.low * 1.02 * (1 + 1e-5)  # six digits
    assert one.beyond == ()
    assert len(tried) == len(set(tried)) < 60


@given(st.integers(1, 255), st.integers(1, 256), st.booleans())
def test_a_number_of_clients_is_exact_up_to_fifty(limit, start, near):
    one, tried = found(CLIENTS, lambda load: load <= limit, start, near)
    assert one.low <= limit < one.high
    assert one.high - one.low <= max(1, 0.02 * one.low)
    assert all(isinstance(load, int) for load in tried)


def test_the_bracket_doubles_and_then_halves():
    one, tried = found(CLIENTS, lambda load: load <= 5, 1)
    assert tried == [1, 2, 4, 8, 6, 5, 7, 9]  # 6 is not met: 1.1, 1.3 and 1.6 times it are 7, 7, 9
    assert (one.low, one.high) == (5, 6)


def test_a_guess_nearby_costs_little():
    _, far = found(RATES, lambda load: load <= 101, 1.0)
    _, close = found(RATES, lambda load: load <= 101, 100.0, near=True)
    assert len(close) < len(far) / 2
    assert close[:2] == [100.0, 104.0]


def test_ends_of_the_scale():
    one, tried = found(CLIENTS, lambda load: True, 16)
    assert (one.low, one.high, one.at_least) == (256, None, True)
    assert tried == [16, 32, 64, 128, 256]
    one, tried = found(CLIENTS, lambda load: False, 16)
    assert (one.low, one.high, one.at_least) == (None, 1, False)
    assert tried == [16, 8, 4, 2, 1]


def test_larger_loads_that_are_met_are_reported():
    """A server that misses 11 and 12 alone: a staircase whose next step is flat again."""
    one, tried = found(CLIENTS, lambda load: load <= 10 or 13 <= load <= 15, 8)
    assert (one.low, one.high) == (10, 11)
    assert one.beyond == tuple(sorted(load for load in tried if 13 <= load <= 15))
    assert one.beyond


def test_growth_is_the_overload():
    """With a share d too many the k-th of requests a second apart stays d k seconds longer."""
    arrival_s = np.arange(1000.0)
    for share in (0.02, 0.5):
        one = trend(arrival_s, 3.0 + share * arrival_s)
        assert one.growth == pytest.approx(share)
        assert one.growing
    slow = trend(arrival_s, 3.0 + GROWTH / 2 * arrival_s)
    assert slow.growth == pytest.approx(GROWTH / 2)
    assert not slow.growing


def test_what_does_not_grow():
    arrival_s = np.arange(1000.0)
    rng = np.random.default_rng(0)
    assert not trend(arrival_s, np.full(1000, 3.0)).growing
    assert not trend(arrival_s, 1000 * rng.exponential(size=1000)).growing
    filling = np.minimum(1.0 + arrival_s / 20, 5.0)  # the first hundred meet an emptier server
    assert not trend(arrival_s, filling).growing
    assert not trend(arrival_s[:8], arrival_s[:8]).growing  # too few to say


def test_noise_hides_a_rise_that_is_smaller():
    """Rise 11.25 over noise of standard deviation 200: an error of 200 sqrt(2 / 450) = 13."""
    arrival_s, noise = np.arange(1000.0), np.random.default_rng(1).normal(size=1000)
    assert trend(arrival_s, 0.025 * arrival_s + 200 * noise).certain is False
    assert trend(arrival_s, 0.025 * arrival_s + 2 * noise).growing


def test_the_interval_over_seeds_by_hand():
    """Student's t of 4 degrees at 95 % is 2.776; the standard deviation of 1..5 is sqrt(2.5)."""
    one = over_seeds([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.776445 * (2.5 / 5) ** 0.5
    assert (one.value, one.low, one.high) == pytest.approx((3, 3 - half, 3 + half), rel=1e-6)
    assert over_seeds([2.0]).low is None
