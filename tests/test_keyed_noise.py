"""The noise that makes sampled text the same under every policy."""

import numpy as np

from traces.common.keyed_noise import gumbel, keyed_draw


def test_same_key_same_noise_and_prefix_of_a_larger_vocabulary():
    assert np.array_equal(gumbel(5, 7, 100), gumbel(5, 7, 100))
    assert np.array_equal(gumbel(5, 7, 100), gumbel(5, 7, 4000)[:100])


def test_every_part_of_the_key_matters():
    base = gumbel(5, 7, 100)
    assert not np.any(base == gumbel(6, 7, 100))
    assert not np.any(base == gumbel(5, 8, 100))
    assert len(np.unique(base)) == 100


def test_draws_follow_the_softmax_law():
    # softmax(logits / T) at T = 2 of logits 2 log(p): exactly p. 20,000 draws: s.e. <= .0035
    law = np.array([0.5, 0.3, 0.15, 0.05])
    draws = [keyed_draw(2 * np.log(law), 2.0, 11, index) for index in range(20_000)]
    share = np.bincount(draws, minlength=4) / len(draws)
    assert np.abs(share - law).max() < 4.5 * 0.0036


def test_temperature_zero_is_the_argmax_and_ties_go_to_the_smaller_id():
    assert keyed_draw(np.array([1.0, 3.0, 3.0]), 0.0, 1, 1) == 1


def test_gumbel_moments():
    # mean Euler-Mascheroni .57722, variance pi^2 / 6 = 1.64493
    noise = np.concatenate([gumbel(3, index, 2000) for index in range(50)])
    assert abs(noise.mean() - 0.57722) < 5 * (1.64493 / 1e5) ** 0.5
    assert abs(noise.var() - 1.64493) < 0.05
