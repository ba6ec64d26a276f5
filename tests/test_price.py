"""The price of a step in its two forms, interpreted and compiled, and the floor below it."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import compiling
from simulator.cost import StepCost, build_step_cost, known_profiles, price
from tests.fast_cases import HOST, cost_of

CLIFFS = ({"above": 12, "factor": 1.1}, {"above": 90, "add_ms": 0.7, "per": "step"})
ROOFLINE = {"gpu": "H100 SXM", "model": "Qwen3-8B", "dtype": "bfloat16"}


def steps_of(cost: StepCost, rng: np.random.Generator, count: int = 150):
    """Steps of any size and context, inside the tables and outside: (widths, context)."""
    knots, batches = cost.prices.target.context, cost.prices.target.batch
    drafts = cost.prices.drafts.batch
    for _ in range(count):
        known = rng.choice([*batches, *drafts, 2 * batches[-1] + 1])
        batch = int(rng.choice([rng.integers(1, 90), known]))
        width = rng.integers(0, rng.choice([1, 2, 9, 80]), batch)
        # Exactly on a knot, near one, or anywhere.
        middle = int(rng.choice([rng.choice(knots), rng.integers(0, 2 * knots[-1] + 2)]))
        yield width, np.full(batch, middle) + rng.integers(0, 2) * rng.integers(0, 50, batch)


COSTS = {
    f"{name} {packing}": {"profile": name, "packing": packing, "draft_steps": 3}
    for name in known_profiles()
    for packing in ("ragged", "dense")
}
COSTS |= {
    f"{mode} {overlap}": {"profile": "mi355x", "mode": mode, "host": HOST.with_(overlap=overlap)}
    for mode in (None, "eager", "graphs")
    for overlap in (False, True)
}
COSTS |= {
    "cliffs": {"profile": "b300", "cliffs": CLIFFS},
    "own graphs": {"profile": "h100_sxm_qwen3_8b_table6", "graph_sizes": (1, 8, 20, 300)},
    "own graphs, none measured": {"profile": "b300", "graph_sizes": (1, 8, 64)},
    "roofline": None,
}


@pytest.mark.parametrize("name", COSTS)
def test_compiled_and_interpreted_prices_are_the_same(name):
    settings = COSTS[name]
    cost = (
        build_step_cost({"profile": "roofline", "roofline": ROOFLINE})
        if settings is None
        else cost_of(**{"host": HOST, **settings})
    )
    rng, code = np.random.default_rng(1), compiling.compiled(price.__name__)
    for width, context in steps_of(cost, rng):
        drafted, tree, fed = (bool(flag) for flag in rng.integers(0, 2, 3))
        ordered, deferred = int(rng.integers(0, 500)), int(rng.integers(0, 30))
        terms = drafted, tree and drafted, ordered, fed, deferred
        batch, packed, largest = len(width), int(width.sum()) + len(width), int(width.max()) + 1
        asked = batch, packed, largest, int(context.sum()), *terms
        plain = price.step_s(cost.prices, *asked)
        assert code.step_s(cost.arrays[0], *asked) == plain
        keys = dict(zip(("drafted", "tree", "ordered", "fed", "deferred"), terms, strict=True))
        step = cost.step(width + 1, context, **keys)
        assert (step.draft_s, step.verify_s, step.host_s) == plain[:3]


@pytest.mark.parametrize("name", COSTS)
def test_the_floor_is_below_every_price_and_never_falls(name):
    """As far as choices ask: not where a deployment captures other sizes."""
    settings = COSTS[name] or {"profile": "b300"}
    cost, rng = cost_of(**settings), np.random.default_rng(2)
    if cost.prices.sizes:
        return
    for width, context in steps_of(cost, rng, 12):
        batch, mean = len(width), float(context.mean())
        totals = np.arange(batch, 40 * batch, max(1, batch // 3)).tolist()

        def seconds(prices, total, batch=batch, mean=mean):
            return price.verify_s(prices, batch, float(total), mean, -(-total // batch))[0]

        floor = [seconds(cost.floor, total) for total in totals]
        assert all(low <= seconds(cost.prices, t) for low, t in zip(floor, totals, strict=True))
        assert np.all(np.diff(floor) >= -1e-15)


@pytest.mark.parametrize("name", known_profiles())
def test_a_curve_is_the_price_at_each_total(name, monkeypatch):
    cost = cost_of(name, cliffs=CLIFFS)
    for batch, context in ((1, 100), (7, 1234.5), (20, 1024), (70, 20_000)):
        totals = np.arange(batch, 40 * batch + 3000, 47)
        one_by_one = [cost.verify_s(batch, total, context) for total in totals.tolist()]
        for work in (0, compiling.PATIENCE * compiling.UNKEPT):
            monkeypatch.setitem(compiling._work, (price.__name__,), work)
            assert cost.verify_curve_s(batch, totals, context).tolist() == one_by_one


def test_a_stretch_of_equal_prices_is_one():
    cost = cost_of("b300")
    for total in (3, 16, 17, 130, 1024, 1025, 3000):
        until = int(price.flat_until(cost.prices, 4, total, 700.0))
        assert cost.verify_s(4, until, 700.0) == cost.verify_s(4, total, 700.0)
        assert until == (cost.executed(total) if total <= 1024 else total)
