"""Policies of every kind that a server must cope with."""

from __future__ import annotations

import numpy as np

from simulator.orders import BestFirstOrder, ChainOrder, StaticOrder
from simulator.policies.autoregressive import Autoregressive
from simulator.policies.cast import Cast
from simulator.policies.priced_survival import PricedSurvival
from simulator.policies.treespark import TreeSpark
from tests.serving import Plain, Watched

TREE = BestFirstOrder(nodes=10, branch=3)
STATIC = StaticOrder(widths=(2, 2, 1))


class Likely(Watched):
    """Verifies the nodes of a survival of at least one half."""

    def allocate(self, step):
        return (step.draft.score >= np.log(0.5)).sum(axis=1)


class Resting(Watched):
    """Drafts every third step."""

    steps_seen = 0

    def plan(self, load):
        self.steps_seen += 1
        return self.order if self.steps_seen % 3 == 0 else None


class Whole(Watched):
    """A static tree, whole for two of three requests."""

    def allocate(self, step):
        return np.where((step.load.request + step.batch) % 3 > 0, step.draft.size, 0)


class Switching(Watched):
    """Chains in odd batches, trees in even ones."""

    def plan(self, load):
        return TREE if load.batch % 2 else ChainOrder(2)


POLICIES = {
    "autoregressive": Autoregressive,
    "plain": Plain,
    "chain": lambda: Watched(2),
    "tree": lambda: Watched(7, TREE),
    "none of a tree": lambda: Watched(0, TREE),
    "likely": lambda: Likely(0, TREE),
    "resting": lambda: Resting(3, TREE),
    "static": lambda: Whole(0, STATIC),
    "switching": lambda: Switching(4),
    "cast": Cast,
    "treespark": TreeSpark,
    "priced_survival": PricedSurvival,
}
NEED_FITTING = ("cast", "treespark", "priced_survival")
