"""Paired intervals over prompts: by hand, their coverage, and against other prompts served."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.results.latency import window_tokens
from simulator.results.sums import Sums as RunSums
from simulator.results.window import find_window
from tests.serving import ConstantCost, Watched, serve
from tests.synthetic import make_pool
from traces.common.intervals import (
    Sums,
    interval,
    log_ratios,
    paired_difference,
    paired_ratio,
    resampled,
    resampled_prompts,
    t_quantile,
    throughput_sums,
)


def sums(amount, per) -> Sums:
    return Sums(np.array(amount, float), np.array(per, float))


def test_a_ratio_by_hand():
    """(10 + 20) / (1 + 2) = 10 against (8 + 12) / (1 + 3) = 5."""
    a, b = sums([10, 20], [1, 2]), sums([8, 12], [1, 3])
    assert paired_ratio(a, b, 1000, 0).value == 2.0
    assert paired_difference(a, b, 1000, 0).value == 5.0
    # Two prompts have three resamples: (2, 0), (1, 1) and (0, 2).
    found = resampled(a, np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]]))
    assert found == pytest.approx([10.0, 10.0, 10.0])
    found = np.exp(log_ratios(a, b, np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]])))
    assert found == pytest.approx([10 / 8, 10 / 5, 10 / 4])
    one = paired_ratio(a, b, 1000, 0)
    assert (one.low, one.high) == pytest.approx((1.25, 2.5))


def test_what_both_share_cancels():
    """A is 3 % faster on every prompt, however different the prompts are."""
    rng = np.random.default_rng(0)
    seconds, tokens = rng.lognormal(0, 2, 30), rng.integers(1, 400, 30)
    one = paired_ratio(sums(tokens, seconds / 1.03), sums(tokens, seconds), 2000, 0)
    assert (one.value, one.low, one.high) == pytest.approx((1.03, 1.03, 1.03))


def test_resamples_are_of_prompts_and_repeatable():
    weights = resampled_prompts(7, 400, 3)
    assert weights.shape == (400, 7)
    assert (weights.sum(axis=1) == 7).all()
    assert weights.mean(axis=0) == pytest.approx(np.ones(7), abs=0.2)
    assert (weights == resampled_prompts(7, 400, 3)).all()
    assert (weights != resampled_prompts(7, 400, 4)).any()


def test_few_prompts_widen_the_interval():
    """Hesterberg: at n = 5 the tails are those of sqrt(5 / 4) * 2.776 = 3.104 normal deviations."""
    draws = np.random.default_rng(1).normal(size=400_000)
    assert interval(0.0, draws, 5).high == pytest.approx(3.104, abs=0.06)
    assert interval(0.0, draws, 10_000).high == pytest.approx(1.960, abs=0.02)
    assert interval(1.5, draws, 1) == interval(1.5, draws[:0], 5)  # neither has one
    assert interval(1.5, draws, 1).low is None
    assert t_quantile(4) == pytest.approx(2.776, abs=1e-3)


@pytest.mark.parametrize("prompts", [12, 60])
def test_coverage_is_about_95_percent(prompts):
    """200 pairs of systems on fresh prompts; the interval covers the truth in 90 to 99 % of them.

    A prompt has a length and a difficulty that both systems share, and luck that each has alone.
    """
    rng = np.random.default_rng(2)
    truth, covered = 1.05, 0
    for _ in range(200):
        tokens = rng.integers(20, 200, prompts)
        hard = rng.lognormal(0, 0.5, prompts)
        ours = tokens * hard * rng.lognormal(-0.02, 0.2, prompts) / truth
        theirs = tokens * hard * rng.lognormal(-0.02, 0.2, prompts)  # mean of exp(N) is 1
        one = paired_ratio(sums(tokens, ours), sums(tokens, theirs), 400, 0)
        covered += one.low <= truth <= one.high
    assert 0.90 <= covered / 200 <= 0.99


@pytest.fixture(scope="module")
def many():
    """960 short texts of unequal lengths."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(4, 50, 960).tolist()
    return make_pool(rng, sequences=960, depths=4, lengths=lengths, noise=0.6)


def by_prompt(recording, width: int, sequences, load: dict, cost=None):
    facts = serve(recording, Watched(width), cost, sequences, **load)
    window = find_window(facts)
    columns = facts.requests | {"window_tokens": window_tokens(facts, window)}
    prompts = np.sort(sequences)
    span = (window.start_s, window.end_s)
    return facts, window, throughput_sums(columns, span, facts.concurrency, prompts)


@pytest.mark.parametrize(
    ("clients", "slots", "prompt_token_s"), [(5, None, 0.0), (5, None, 0.001), (7, 3, 0.0)]
)
def test_the_sums_are_the_reported_throughput(many, clients, slots, prompt_token_s):
    """Little's law: K clients' seconds fill the window, prefill and waiting with them."""
    load = {"max_concurrency": clients, "num_prompts": 60, "max_num_seqs": slots}
    cost = ConstantCost(prompt_token_s=prompt_token_s)
    facts, window, found = by_prompt(many, 3, np.arange(30), load, cost)
    numbers = RunSums.of(facts, window).throughput()
    assert window_tokens(facts, window).sum() == numbers["window"]["tokens"]
    assert found.per.sum() == pytest.approx(clients * window.seconds, rel=1e-12)
    assert found.value == pytest.approx(numbers["output_throughput"], rel=1e-12)


def test_the_interval_says_what_other_prompts_give(many):
    """24 times 40 other prompts: the ratios scatter as much as each bootstrap says."""
    seen, said = [], []
    for part in np.arange(960).reshape(24, 40):
        load = {"max_concurrency": 4, "num_prompts": 48}
        a, b = (by_prompt(many, width, part, load)[2] for width in (4, 1))
        seen.append(np.log(a.value / b.value))
        said.append(np.std(log_ratios(a, b, resampled_prompts(40, 500, 0))))
    assert 0.65 < np.std(seen, ddof=1) / np.mean(said) < 1.5
