"""Means, intervals and ratios of made-up runs, by hand."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest

from simulator.studies.contest.entrants import Entrant
from simulator.studies.contest.recommend import Place, Ranking, without_drafts
from simulator.studies.contest.scores import Score, against
from simulator.studies.runs import Result
from tests.studies_cases import closed_loop as closed
from tests.studies_cases import open_loop

PROMPTS = 6
ENTRANT = Entrant("made_up", "published", {"_target_": "x"})


def score(*runs: Result, by_goodput: bool = False) -> Score:
    return Score(ENTRANT, runs, np.arange(PROMPTS), by_goodput, resamples=500)


FAST = closed([60.0, 50, 40, 60, 50, 40], [1.0] * 6)  # 300 tokens in 3 s
SLOW = closed([30.0, 25, 20, 30, 25, 20], [1.0] * 6)


def test_the_mean_is_over_seeds():
    both = score(FAST, closed([60.0] * 6, [1.0] * 6))
    assert both.values == pytest.approx([100, 120])
    assert both.value == pytest.approx(110)
    assert both.over_seeds.value == pytest.approx(110)
    half = 12.7062 * 200**0.5 / 2**0.5  # Student's t of one degree, standard deviation sqrt(200)
    assert both.over_seeds.high == pytest.approx(110 + half, rel=1e-4)
    spread = both.over_prompts
    assert spread.value == pytest.approx(110)
    assert spread.low < 110 < spread.high
    assert both.share("modelled") == 0.25
    assert both.level_ms("tpot") == 2


def test_goodput_of_a_closed_loop_by_hand():
    """6 requests end in 3 s, and half of them are good: one per second."""
    run = closed([60.0] * 6, [1.0] * 6, [1.0, 0, 1, 0, 1, 0])
    one = score(run, by_goodput=True)
    assert one.value == pytest.approx(1.0)
    assert one.tokens_s == pytest.approx(120)
    assert one.attained == 0.5


def test_goodput_of_an_open_loop_is_the_share_of_what_comes():
    """Three of four requests are good, and one was rejected: 10 a second come, 6 are good."""
    run = open_loop(
        request_throughput=7.0, arriving=10.0, judged=4, rejected=1, nodes=None, prompts=[0, 2],
        tokens=[30.0, 10.0], inside_s=[2.0, 3.0], asked=[2.0, 3.0], good=[2.0, 1.0],
    )  # fmt: skip
    assert run.attained == 0.6
    assert score(run, by_goodput=True).value == pytest.approx(6.0)
    assert score(run).value == pytest.approx(7.0 * 40 / 5)
    assert score(run).mean("nodes") is None


def test_twice_as_fast_with_every_prompt_is_certain():
    """The ratio is a half in every resample of prompts and with every seed."""
    ratio = against(score(SLOW, SLOW), score(FAST, FAST))
    for one in (ratio.over_prompts, ratio.over_seeds):
        assert (one.value, one.low, one.high) == pytest.approx((0.5, 0.5, 0.5))
    assert not ratio.same
    assert against(score(FAST, FAST), score(FAST, FAST)).same


def test_one_that_is_ahead_with_some_prompts_alone_is_not_told_apart():
    other = closed([40.0, 50, 60, 40, 50, 59], [1.0] * 6)
    ratio = against(score(other, other), score(FAST, FAST))
    assert ratio.over_prompts.low < 1 < ratio.over_prompts.high
    assert ratio.over_seeds.high < 1  # both seeds say so
    assert ratio.same


def test_one_seed_or_one_prompt_tells_nothing():
    assert against(score(SLOW), score(FAST)).over_seeds.low is None
    assert against(score(SLOW), score(FAST)).same


def test_nothing_against_something():
    """A policy without a good request is certainly worse; two without are not compared."""
    none = closed([60.0] * 6, [1.0] * 6, [0.0] * 6)
    some = closed([60.0] * 6, [1.0] * 6)
    one, other = (score(run, run, by_goodput=True) for run in (none, some))
    ratio = against(one, other)
    assert (ratio.over_prompts.value, ratio.over_seeds.value) == (0, 0)
    assert not ratio.same
    assert isnan(against(one, one).over_prompts.value)
    assert against(one, one).same


def test_domains_by_hand():
    domain_of, names = np.array([0, 0, 0, 1, 1, 1]), ("code", "chat", "more")
    found = score(FAST, SLOW).in_domains(domain_of, names)
    assert [one.domain for one in found] == ["code", "chat"]
    assert [one.prompts for one in found] == [3, 3]
    assert found[0].speed.value == pytest.approx((60 + 50 + 40 + 30 + 25 + 20) / 6)
    assert found[0].attained == 1


def placed(policy: str, target: str, tokens: float, nodes: float, drafting: float) -> Place:
    """A policy of ours with a run of 6 prompts of `tokens` each, a second each, of two clients."""
    run = closed([tokens] * 6, [1.0] * 6, nodes=nodes, drafting=drafting)
    node = {"name": policy, "_target_": f"simulator.policies.{target}"}
    one = Score(Entrant(policy, "default", node), (run,), np.arange(PROMPTS), False, resamples=100)
    return Place(one, True, against(one, one))


def test_a_policy_that_verifies_nothing_is_explained():
    """60 tokens a second against 80 are 25 % fewer, and 64 against 80 are 20 %."""
    plain = placed("autoregressive", "autoregressive.Autoregressive", 80, 0.0, 0.0)
    fast = placed("fixed_chain", "fixed_chain.FixedChain", 90, 3.0, 1.0)
    none = [placed("dspark", "dspark.DSpark", tokens, 0.0, 1.0) for tokens in (60, 64)]
    found = [Ranking(load, (fast, plain, one)) for load, one in zip((4, 64), none, strict=True)]
    (line,) = without_drafts(found)
    assert "dspark verifies no draft token at max_concurrency 4, 64" in line
    assert line.endswith("in 100% of its steps and pays for it; up to 25% fewer tokens/s than "
                         "plain decoding")  # fmt: skip
    assert list(without_drafts([Ranking(4, (fast, plain))])) == []
