"""DSpark and adaptive verification: what they admit, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.policies.adaptive_verification import AdaptiveVerification
from simulator.policies.dspark import DSpark
from tests.policy_lab import chain_step, staircase

# One chain of 11 tokens: 10 ms up to 3 of them, 12 ms up to 10, 14 ms beyond.
SURVIVAL = [0.9, 0.6, 0.5, 0.3, 0.25, 0.22, 0.2, 0.19, 0.18, 0.17, 0.1]
STEPS = [(4, 9.5), (11, 11.5), (12, 13.5)]


def usual(policy: AdaptiveVerification, survival) -> AdaptiveVerification:
    """As after `prepare`, with these mean survivals of the calibration split."""
    policy._usual = np.log(np.array(survival))
    policy._last = (np.zeros(0, np.int64), np.zeros((0, len(survival))))
    return policy


@pytest.mark.parametrize(
    ("chains", "steps", "widths"),
    [
        # Theta: 3 tokens .300 per ms, 4 tokens .275: it breaks at the jump.
        ([SURVIVAL], STEPS, [3]),
        # Ten requests of 2 tokens cost 10.5 ms up to 12 packed and 11.0 up to 13. tau: 10, + .9,
        # + .8 = 11.7, 11.7 / 10.5 = 1.114; the next best, .6, gives 12.3 / 11.0 = 1.118; then .55
        # at 14 packed, of 20.5 ms, does not.
        (
            [[0.9, 0.6], [0.8, 0.55]] + [[0.3, 0.1]] * 8,
            [(12, 10.0), (13, 10.5), (30, 20.0)],
            [2, 1] + [0] * 8,
        ),
        # Room for 4 of 5 equal survivals, 10 ms up to 7 packed tokens (roots included), 100 ms
        # beyond: the first positions of all three, then request 0's second.
        ([[0.5, 0.5, 0.1], [0.5, 0.2, 0.1], [0.5, 0.5, 0.1]], [(7, 9.5), (30, 99.5)], [2, 1, 1]),
        # tau 1 at 1 ms and 1.5 at 1.5 ms: a Theta that only stays equal breaks.
        ([[0.5, 0.45]], [(1, 0.5), (2, 1.0), (3, 1.0)], [0]),
    ],
)
def test_dspark_admits_over_the_batch_while_theta_rises(chains, steps, widths):
    cost = staircase(steps, batches=(len(chains),))
    assert DSpark().allocate(chain_step(chains, cost)).tolist() == widths


def test_the_global_budget_jumps_where_dspark_breaks():
    """10 tokens, .3758 per ms, are the best of all."""
    step = chain_step([SURVIVAL], staircase(STEPS))
    assert usual(AdaptiveVerification(), SURVIVAL).allocate(step).tolist() == [10]


def test_dspark_admission_does_not_see_what_lies_behind_the_break():
    """Lossless with sampled tokens: survivals behind the break may be anything below."""
    cost = staircase([(6, 9.5), (30, 40.0)], batches=(2,))
    admitted = [[0.9, 0.7], [0.8, 0.6]]
    seen = {
        tuple(DSpark().allocate(chain_step([[*admitted[0], a], [*admitted[1], b]], cost)))
        for a in (0.01, 0.3, 0.59)
        for b in (0.02, 0.5, 0.59)
    }
    assert seen == {(2, 2)}


def test_dspark_threshold_cuts_at_a_positions_own_confidence():
    """Confidences (.9, .5, .9) and (.4, .9, .9): the product plays no part, and .5 itself stays."""
    chains = np.cumprod([[0.9, 0.5, 0.9], [0.4, 0.9, 0.9], [0.8, 0.7, 0.6]], axis=1)
    policy = DSpark(threshold=0.45)
    assert policy.allocate(chain_step(chains)).tolist() == [3, 0, 3]
    assert DSpark(threshold=0.65).allocate(chain_step(chains)).tolist() == [1, 0, 2]
    assert DSpark(threshold=0.0).allocate(chain_step(chains)).tolist() == [3, 3, 3]
    assert policy.near_threshold == 0
    policy = DSpark(threshold=0.50009)
    assert policy.allocate(chain_step(chains)).tolist() == [1, 0, 3]
    assert policy.near_threshold == 1


def test_the_budget_follows_the_last_step_and_the_tokens_the_present_one():
    """Step 1 sizes with the usual survivals, step 2 with those of step 1, whatever it holds."""
    cost = staircase(STEPS)
    policy = usual(AdaptiveVerification(), [0.01] * 11)
    assert policy.allocate(chain_step([SURVIVAL], cost, ids=[5])).tolist() == [3]
    low = [0.2 * s for s in SURVIVAL]
    assert policy.allocate(chain_step([low], cost, ids=[5])).tolist() == [10]
    # (1 + .2 x 2) / 10 = .14 at 3 tokens, (1 + .2 x 3.51) / 12 = .1418 at 10
    assert policy.allocate(chain_step([SURVIVAL], cost, ids=[5])).tolist() == [10]
    very_low = [0.1 * s for s in SURVIVAL]
    policy.allocate(chain_step([very_low], cost, ids=[5]))
    # .12 at 3 tokens, 1.351 / 12 = .1126 at 10
    assert policy.allocate(chain_step([SURVIVAL], cost, ids=[5])).tolist() == [3]
    assert policy.allocate(chain_step([SURVIVAL], cost, ids=[6])).tolist() == [3]  # another one


def test_requests_keep_their_own_stale_survivals_when_the_batch_changes():
    """Stale are request 8's (.9, .8); new requests have the usual .05.

    10 ms up to 5 packed tokens, 14 ms beyond: (3 + 1.7) / 10 = .47 with 2 tokens, 4.9 / 14 with 6.
    """
    cost = staircase([(5, 9.5), (30, 13.5)], batches=(1, 3))
    policy = usual(AdaptiveVerification(), [0.05, 0.05])
    policy.allocate(chain_step([[0.5, 0.4], [0.9, 0.8]], cost, ids=[7, 8]))
    stale = policy._stale(chain_step([[0.1, 0.1]] * 3, ids=[8, 9, 10]).load)
    assert np.exp(stale) == pytest.approx(np.array([[0.9, 0.8], [0.05, 0.05], [0.05, 0.05]]))
    # spent on the best of the present step: 9's two
    widths = policy.allocate(chain_step([[0.1, 0.1], [0.7, 0.6], [0.5, 0.2]], cost, ids=[8, 9, 10]))
    assert widths.tolist() == [0, 2, 0]


def test_a_cost_that_falls_is_made_to_stay():
    """6, 12 and 6 ms at 1, 2 and 3 packed tokens: as measured, 2 tokens would look best.

    1 / 6 = .167 without tokens, 1.5 / 12 with one, 1.9 / 12 = .158 and not 1.9 / 6 with two.
    """
    cost = staircase([(1, 5.5), (2, 11.5), (3, 5.5)])
    assert usual(AdaptiveVerification(), [0.5, 0.4]).allocate(
        chain_step([[0.5, 0.4]], cost)
    ).tolist() == [0]
