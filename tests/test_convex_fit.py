"""Fits under shape against enumeration and known solutions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from simulator.policies.bastion import fit_roofline
from simulator.policies.caddtree import fit_convex
from traces.common.errors import InputError


def enumerated(x, y):
    """Best of all least-squares fits over subsets of hinges whose rises come out non-negative."""
    hinges = np.maximum(x[:, None] - x[:-1], 0)
    best, values = np.inf, None
    for count in range(len(x)):
        for subset in itertools.combinations(range(len(x) - 1), count):
            design = np.column_stack([np.ones(len(x)), hinges[:, subset]])
            solution = np.linalg.lstsq(design, y, rcond=None)[0]
            error = ((design @ solution - y) ** 2).sum()
            if (solution[1:] >= -1e-9).all() and error < best - 1e-15:
                best, values = error, design @ solution
    return values


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_best_of_all_sets_of_hinges(seed):
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.integers(1, 9, rng.integers(1, 8))).astype(float)
    y = rng.normal(size=len(x)) * rng.choice([1, 10]) + rng.choice([0, 0.5]) * x
    np.testing.assert_allclose(fit_convex(x, y)(x), enumerated(x, y), rtol=0, atol=1e-7)


def test_a_convex_curve_is_kept_and_extended_by_its_last_slope():
    fit = fit_convex([1, 2, 4, 8], [3.0, 3.0, 5.0, 13.0])  # slopes 0, 1, 2
    np.testing.assert_allclose(fit([0, 1, 3, 8, 10]), [3, 3, 4, 13, 17], atol=1e-9)


def test_falling_points_become_their_mean_and_a_jump_a_line():
    np.testing.assert_allclose(fit_convex([1, 2, 3], [9.0, 6.0, 3.0])([0, 7]), 6)
    # 0, 0, 1, 1: the line through the last three points, 1/6, 2/3, 7/6, rises by 1/2, the step
    # to it from the first point by 1/6: convex already
    jump = fit_convex([0, 1, 2, 3], [0.0, 0.0, 1.0, 1.0])
    np.testing.assert_allclose(jump([0, 1, 2, 3]) * 6, [0, 1, 4, 7], atol=1e-9)


def test_one_point_is_constant_and_bad_points_are_refused():
    assert fit_convex([4], [2.5])(np.arange(3)).tolist() == [2.5] * 3
    for x in ([], [1, 1], [2, 1]):
        with pytest.raises(InputError, match="fit_convex"):
            fit_convex(x, np.ones(len(x)))


def test_roofline_finds_both_lines():
    x = np.array([16, 32, 64, 128, 256, 512])
    y = np.maximum(10 + 0.01 * x, 4 + 0.05 * x)  # they meet at 150
    fit = fit_roofline(x, y, 1 + np.arange(6))
    assert fit.memory == pytest.approx((10, 0.01))
    assert fit.compute == pytest.approx((4, 0.05))
    np.testing.assert_allclose(fit([16, 150, 1000]), [10.16, 11.5, 54])


def test_roofline_slopes_are_never_negative_and_weights_count():
    fit = fit_roofline([1, 2], [5.0, 3.0], [1, 1])
    assert fit([0, 9]).tolist() == [4, 4]
    heavy = fit_roofline([1, 2], [5.0, 3.0], [1, 1000.0])
    assert heavy([0]) == pytest.approx(5, abs=1e-5)
    with pytest.raises(InputError, match="no points"):
        fit_roofline([], [], [])
