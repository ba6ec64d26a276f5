"""The compiled price of a step against `StepCost.step`: every part, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.cost import StepCost, find_profile, known_profiles
from simulator.engine.compiled.eligible import COST, HOST
from simulator.engine.compiled.kernel import Host, price
from simulator.engine.compiled.prices import prices_of
from tests.fast_cases import HOST as TERMS
from tests.fast_cases import cost_of


def compared(cost: StepCost, rng: np.random.Generator, count: int = 150) -> None:
    """Steps of any size and context, inside the tables and outside."""
    prices = prices_of(cost)
    surface = cost._target.surface
    knots = sorted({context for slab in surface.slabs for context in slab.contexts})
    batches = [*surface.batches, *cost._drafter.drafts.batches, 2 * surface.batches[-1] + 1]
    for _ in range(count):
        batch = int(rng.choice([rng.integers(1, 90), rng.choice(batches)]))
        width = rng.integers(0, rng.choice([1, 2, 9, 80]), batch)
        # Exactly on a knot, near one, or anywhere.
        middle = int(rng.choice([rng.choice(knots), rng.integers(0, 2 * knots[-1])]))
        context = np.full(batch, middle) + rng.integers(0, 2) * rng.integers(0, 50, batch)
        ordered, deferred = int(rng.integers(0, 500)), int(rng.integers(0, 30))
        drafted, tree, fed = (bool(flag) for flag in rng.integers(0, 2, 3))
        tree = tree and drafted
        expected = cost.step(
            width + 1,
            context,
            drafted=drafted,
            tree=tree,
            ordered=ordered,
            fed=fed,
            deferred=deferred,
        )
        sums = int(width.sum()) + batch, int(width.max()) + 1, int(context.sum())
        found = price(prices, batch, *sums, drafted, tree, ordered, fed, deferred)
        assert found == (
            expected.draft_s,
            expected.verify_s,
            expected.host_s,
            int(expected.source),
            expected.executed,
        )


@pytest.mark.parametrize("profile", known_profiles())
@pytest.mark.parametrize("packing", ["ragged", "dense"])
def test_shipped_profiles(profile, packing):
    cost = cost_of(profile, packing=packing, host=TERMS, draft_steps=3)
    compared(cost, np.random.default_rng(1))


@pytest.mark.parametrize("mode", [None, "eager", "graphs"])
@pytest.mark.parametrize("overlap", [False, True])
def test_modes_and_overlap(mode, overlap):
    cost = cost_of("mi355x", mode=mode, host=replace(TERMS, overlap=overlap))
    compared(cost, np.random.default_rng(2))


def test_cliffs():
    cliffs = [{"above": 12, "factor": 1.1}, {"above": 90, "add_ms": 0.7, "per": "step"}]
    compared(cost_of("b300", cliffs=cliffs), np.random.default_rng(3))


def test_profiles_that_nobody_timed():
    from simulator.cost import build_step_cost

    roofline = {"gpu": "H100 SXM", "model": "Qwen3-8B", "dtype": "bfloat16"}
    cost = build_step_cost({"profile": "roofline", "roofline": roofline})
    compared(cost, np.random.default_rng(4))


def test_every_host_term_and_attribute_is_known():
    """A term that is added to the cost model has to be added to the compiled price as well."""
    assert set(Host._fields) == set(TERMS.__slots__) == HOST
    assert vars(StepCost(find_profile("b300"))).keys() == COST
