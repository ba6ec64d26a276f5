"""Hindsight bounds keep below a server whose engine adds bubbles, launches and cliffs."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.cost import StepCost
from simulator.studies.bounds.batched import batched_bound, host_shares
from tests.bounds_cases import all_texts, random_profile
from tests.synthetic import make_geometric
from tests.test_bounds import CLIFFS, LAUNCHED

WIDEST, BATCH, DEPTHS = 4, 3, 4


def cost_of(seed: int, mode: str | None, overlap: bool) -> StepCost:
    profile = random_profile(np.random.default_rng(seed)).profile
    return StepCost(profile, host=LAUNCHED.with_(overlap=overlap), mode=mode, cliffs=CLIFFS)


@pytest.mark.parametrize("mode", [None, "eager"])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_shares_of_a_steps_requests_add_up_to_no_more_than_it_takes(seed, tree, overlap, mode):
    """At the floor that was found: every batch of widths at every context, and plain steps."""
    recording = make_geometric(0.6, np.random.default_rng(seed), sequences=4, length=9, depths=4)
    texts, cost = all_texts(recording), cost_of(seed, mode, overlap)
    width = np.tile(np.arange(DEPTHS + 1), (len(texts.context), 1))
    found = batched_bound(cost, texts, BATCH, width, tree=tree, ordered=9, widest=WIDEST)
    line, options = found.line, found.schedule.options
    assert options.round_s[:, 0] == pytest.approx(_round_s(options, line, texts, 0, cost, tree))
    rng = np.random.default_rng(seed)
    for _ in range(300):
        rows = rng.integers(0, len(texts.context), BATCH)
        widths = rng.integers(0, WIDEST + 1, BATCH)
        step = cost.step(
            widths + 1,
            texts.context[rows],
            drafted=True,
            tree=tree and bool(widths.any()),
            ordered=9 * BATCH,
        )
        assert options.round_s[rows, widths].sum() <= step.total_s * (1 + 1e-9)
        plain = cost.step(np.ones(BATCH, int), texts.context[rows], drafted=False, tree=False)
        assert options.plain_s[rows].sum() <= plain.total_s * (1 + 1e-9)


def _round_s(options, line, texts, width, cost, tree):
    """Seconds of a round's share, launched or not: whichever the bound took."""
    device = (line.alpha + line.gamma * texts.context) / BATCH + line.beta * (1 + width)
    shares = [
        host_shares(cost, BATCH, np.array([[width]]), tree, 9, launched)[1][0, 0]
        for launched in (False, True)
    ]
    near = [np.abs(options.round_s[:, width] - device - share).max() for share in shares]
    return device + shares[int(np.argmin(near))]


def test_launches_give_a_bound_where_they_are_all_there_is():
    """60 ms of launches a step of 3 requests: a share is 20 ms and the work of the host."""
    recording = make_geometric(0.6, np.random.default_rng(1), sequences=4, length=9, depths=4)
    texts = all_texts(recording)
    base = cost_of(1, "eager", False)
    host = LAUNCHED.with_(launch_s=0.06)
    cost = StepCost(base.profile, host=host, mode="eager")
    width = np.tile(np.arange(DEPTHS + 1), (len(texts.context), 1))
    found = batched_bound(cost, texts, BATCH, width, tree=True, ordered=0, widest=WIDEST)
    assert found.line.alpha == pytest.approx(0.06)
    assert found.schedule.options.plain_s == pytest.approx(0.02 + 3e-4 / 3)
