"""O5 against enumeration, against every step, and against simulated servers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.cost import StepCost, find_profile
from simulator.cost.host import HostOverhead
from simulator.orders import BestFirstOrder, ChainOrder, build_order
from simulator.policies.checks import verifies_trees
from simulator.policy import Policy
from simulator.studies.bounds.batched import (
    StepFloor,
    batched_bound,
    host_shares,
    options_at,
    total_left,
)
from simulator.studies.bounds.lone import (
    best_schedule,
    breakpoints,
    free_options,
    least_left,
    order_options,
    pool_prefix,
)
from tests.bounds_cases import all_texts, assert_steps_cover, drawn, random_profile
from tests.serving import serve
from tests.synthetic import make_geometric
from tests.test_bounds import CLIFFS, LAUNCHED
from traces.profiles.tables import DraftRow, VerifyRow

HOST = HostOverhead(4e-4, 1e-5, 2e-4, 1e-4, 3e-5, 2e-6, 4e-5)
COSTS = {
    "affine host": lambda: StepCost(random_profile(rng(1)).profile, host=HOST),
    "overlap": lambda: StepCost(random_profile(rng(2)).profile, host=HOST.with_(overlap=True)),
    "dense": lambda: StepCost(random_profile(rng(3)).profile, host=HOST, packing="dense"),
    "b300": lambda: StepCost(find_profile("b300")),
    "mi355x": lambda: StepCost(find_profile("mi355x")),
    "cpu": lambda: StepCost(find_profile("small_pair_semi_cpu"), draft_steps=2),
}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_the_floor_is_below_every_step(name, batch):
    """Whatever the others of the step do, its requests' shares add up to no more than it takes."""
    cost, draws, widest = COSTS[name](), rng(batch), 9
    floor = StepFloor.of(cost, batch, widest, np.array([3, 45]))
    low, high = floor.gammas
    for _ in range(60):
        line = floor.line(draws.random() * floor.most_beta, low + draws.random() * (high - low))
        width, context = draws.integers(0, widest + 1, batch), draws.integers(3, 46, batch)
        tree = bool(draws.random() < 0.5)
        drafted = {"drafted": True, "tree": tree and bool(width.any()), "ordered": 9 * batch}
        step_s = cost.step(width + 1, context, **drafted).total_s
        plain_share, share = host_shares(cost, batch, width, tree, 9)
        least = line.alpha + line.beta * (width + 1).sum() + line.gamma * context.mean()
        assert least + share.sum() <= step_s * (1 + 1e-12)
        plain_s = cost.step(width * 0 + 1, context, drafted=False, tree=False).total_s
        least = line.alpha_plain + line.gamma * context.mean() + batch * plain_share
        assert least <= plain_s * (1 + 1e-12)


def bound_of(table, texts, cost, batch: int):
    return batched_bound(
        cost,
        texts,
        batch,
        breakpoints(table, texts.anchors),
        tree=verifies_trees(table),
        ordered=table.size[texts.anchors][:, None],
        widest=table.max_nodes,
    )


def recording_of(kind: str):
    return drawn(kind, (40, 30, 35, 20), depths=4, seed=4)


def affine_cost() -> StepCost:
    """0.5 + 0.25 per packed token + 1/64 per context token, milliseconds, at every batch."""
    base = random_profile(rng(0)).profile
    rows = [(b, c, b * m) for b in (1, 4) for c in (2, 90) for m in (1, 30)]
    verify = tuple(VerifyRow(b, c, m, 0.5 + m / 4 + c / 64, captured=False) for b, c, m in rows)
    draft = tuple(DraftRow(b, c, 0.75) for b in (1, 4) for c in (2, 90))
    return StepCost(replace(base, verify=verify, draft=draft))


def test_affine_steps_are_bounded_exactly():
    """Floor = cost, so a lone request's bound is its best schedule, and slopes are recovered."""
    recording, cost = recording_of("hidden"), affine_cost()
    texts, table = all_texts(recording), build_order(BestFirstOrder(nodes=9), recording)
    best = best_schedule(order_options(table, texts, cost))
    assert np.isin(best.width, np.arange(10)).all()
    assert best.drafted.any()
    found = bound_of(table, texts, cost, 1)
    assert found.schedule.seconds == pytest.approx(best.seconds, rel=1e-7)
    assert found.line.beta == pytest.approx(0.25e-3, rel=1e-4)


@pytest.mark.parametrize("name", ["affine host", "b300", "cpu"])
def test_a_lone_requests_floor_is_below_its_best_schedule(name):
    recording, cost = recording_of("hidden"), COSTS[name]()
    texts = all_texts(recording)
    for order in (ChainOrder(), BestFirstOrder(nodes=20)):
        table = build_order(order, recording)
        best = best_schedule(order_options(table, texts, cost)).seconds.sum()
        found = bound_of(table, texts, cost, 1).schedule.seconds.sum()
        assert 0.7 * best < found <= best * (1 + 1e-12)


@pytest.mark.parametrize("name", ["affine host", "b300", "cpu"])
def test_no_slopes_give_more(name):
    """The maximum over both slopes, against a fine grid of them."""
    recording, cost, batch = recording_of("pool"), COSTS[name](), 3
    texts, table = all_texts(recording), build_order(BestFirstOrder(nodes=12), recording)
    width = breakpoints(table, texts.anchors)
    found = bound_of(table, texts, cost, batch).schedule.seconds.sum()
    floor = StepFloor.of(cost, batch, 12, texts.context)
    host = host_shares(cost, batch, width, True, table.size[texts.anchors][:, None])
    grid = [
        total_left(options_at(floor.line(beta, gamma), texts, batch, width, host))
        for beta in np.linspace(0, floor.most_beta, 60)
        for gamma in np.linspace(*floor.gammas, 15)
    ]
    assert found >= max(grid) * (1 - 1e-5)
    assert found > min(grid) * 1.001


class Roaming(Policy):
    """Random widths of an order, and now and then a plain step."""

    def __init__(self, order) -> None:
        self.order, self._draws = order, rng(3)

    def plan(self, load):
        return None if self._draws.random() < 0.2 else self.order

    def allocate(self, step):
        return self._draws.integers(0, step.draft.size + 1)


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_every_step_of_a_server_takes_what_its_rounds_must(name, batch):
    """A round from s to s' takes V(s) - V(s') of its step, in the order and with free nodes."""
    recording, cost = recording_of("hidden"), COSTS[name]()
    texts, order = all_texts(recording), BestFirstOrder(nodes=9, branch=3)
    table = build_order(order, recording)
    prefix, depth = pool_prefix(recording, texts.anchors, 3), np.arange(5)
    free = np.where(depth <= prefix[:, None], depth, -1)
    terms = {"tree": False, "ordered": np.maximum(free, 0), "widest": 9}
    bounds = [bound_of(table, texts, cost, batch), batched_bound(cost, texts, batch, free, **terms)]
    left = [least_left(bound.schedule.options) for bound in bounds]
    if batch == 1:
        left.append(least_left(order_options(table, texts, cost)))
        left.append(least_left(free_options(prefix, 4, 9, texts, cost)))
    facts = serve(recording, Roaming(order), cost, max_concurrency=batch, num_prompts=12)
    full = facts.steps["batch"] == batch
    assert full.sum() > 40
    for value in left:
        assert_steps_cover(facts, recording, value, full)


WIDEST, BATCH, DEPTHS = 4, 3, 4


def engine_of(seed: int, mode: str | None, overlap: bool) -> StepCost:
    profile = random_profile(np.random.default_rng(seed)).profile
    return StepCost(profile, host=LAUNCHED.with_(overlap=overlap), mode=mode, cliffs=CLIFFS)


@pytest.mark.parametrize("mode", [None, "eager"])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_shares_of_a_steps_requests_add_up_to_no_more_than_it_takes(seed, tree, overlap, mode):
    """At the floor that was found: every batch of widths at every context, and plain steps."""
    recording = make_geometric(0.6, np.random.default_rng(seed), sequences=4, length=9, depths=4)
    texts, cost = all_texts(recording), engine_of(seed, mode, overlap)
    width = np.tile(np.arange(DEPTHS + 1), (len(texts.context), 1))
    found = batched_bound(cost, texts, BATCH, width, tree=tree, ordered=9, widest=WIDEST)
    line, options = found.line, found.schedule.options
    assert options.round_s[:, 0] == pytest.approx(_share_s(options, line, texts, 0, cost, tree))
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


def _share_s(options, line, texts, width, cost, tree):
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
    base = engine_of(1, "eager", False)
    host = LAUNCHED.with_(launch_s=0.06)
    cost = StepCost(base.profile, host=host, mode="eager")
    width = np.tile(np.arange(DEPTHS + 1), (len(texts.context), 1))
    found = batched_bound(cost, texts, BATCH, width, tree=True, ordered=0, widest=WIDEST)
    assert found.line.alpha == pytest.approx(0.06)
    assert found.schedule.options.plain_s == pytest.approx(0.02 + 3e-4 / 3)
