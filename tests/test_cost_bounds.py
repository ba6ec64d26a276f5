"""Hindsight bounds keep below a server whose engine adds bubbles, launches and cliffs."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.cost import HostOverhead, StepCost
from simulator.studies.bounds.batched import batched_bound, host_shares
from simulator.studies.bounds.options import lone_prices
from tests.bounds_cases import all_texts, random_profile
from tests.synthetic import make_geometric

WIDEST, BATCH, DEPTHS = 4, 3, 4
HOST = HostOverhead(
    round_s=1e-4,
    node_s=2e-4,
    tree_step_s=6e-4,
    plain_s=3e-4,
    request_s=1e-5,
    tree_request_s=1e-4,
    kv_move_token_s=5e-5,
    bubble_s=4e-4,
    launch_s=6e-3,
)


def cost_of(seed: int, mode: str | None, overlap: bool) -> StepCost:

    profile = random_profile(np.random.default_rng(seed)).profile
    cliffs = [
        {"above": 2, "factor": 1.2, "add_ms": 0.3},
        {"above": 7, "factor": 1.1, "per": "step"},
    ]
    return StepCost(profile, host=HOST.with_(overlap=overlap), mode=mode, cliffs=cliffs)


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


@pytest.mark.parametrize(("mode", "overlap"), [(None, True), ("eager", False), ("eager", True)])
def test_a_lone_request_pays_what_its_steps_cost(mode, overlap):
    cost, context = cost_of(5, mode, overlap), np.array([5, 20])
    prices = lone_prices(cost, context, WIDEST, tree=True)
    for row, kv in enumerate(context.tolist()):
        for width in range(WIDEST + 1):
            step = cost.step(
                np.array([width + 1]),
                np.array([kv]),
                drafted=True,
                tree=width > 0,
                ordered=width,
            )
            assert prices.round_s[prices.row[row], width] == pytest.approx(step.total_s, rel=1e-12)


def test_launches_give_a_bound_where_they_are_all_there_is():
    """60 ms of launches a step of 3 requests: a share is 20 ms and the work of the host."""

    recording = make_geometric(0.6, np.random.default_rng(1), sequences=4, length=9, depths=4)
    texts = all_texts(recording)
    base = cost_of(1, "eager", False)
    host = HOST.with_(launch_s=0.06)
    cost = StepCost(base.profile, host=host, mode="eager")
    width = np.tile(np.arange(DEPTHS + 1), (len(texts.context), 1))
    found = batched_bound(cost, texts, BATCH, width, tree=True, ordered=0, widest=WIDEST)
    assert found.line.alpha == pytest.approx(0.06)
    assert found.schedule.options.plain_s == pytest.approx(0.02 + 3e-4 / 3)
