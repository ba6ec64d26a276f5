"""What the tests of compiled rounds share: the same job served twice, and policies with rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import simpy

from simulator.cost import HostOverhead, StepCost, find_profile
from simulator.engine.arrivals import arrival_times, make_workload
from simulator.engine.compiled import eligible
from simulator.engine.compiled.server import FastServer
from simulator.engine.fleet import Fleet
from simulator.engine.run import fit
from simulator.engine.settings import Settings
from simulator.orders import build_order
from simulator.policies.autoregressive import Autoregressive
from simulator.policies.batch_schedule import BatchSchedule
from simulator.policies.cast import Cast
from simulator.policies.ddtree import DDTree
from simulator.policies.eagle2 import Eagle2
from simulator.policies.fixed_chain import FixedChain
from simulator.policies.fixed_tree import FixedTree
from simulator.policies.opt_tree import OptTree
from simulator.policies.pctree import PCTree
from simulator.policies.priced_survival import PricedSurvival
from simulator.policies.sequoia import Sequoia
from simulator.policies.treespark import TreeSpark
from simulator.policies.tuned_chain import TunedChain
from simulator.policy import Policy
from simulator.results.facts import Facts
from simulator.results.ledger import Ledger
from traces.recordings.recording import Recording

LADDER = ({"max_batch": 1, "theta": 0}, {"max_batch": 3, "theta": 0.1})
POLICIES: dict[str, Callable[[], Policy]] = {
    "autoregressive": Autoregressive,
    "fixed_chain": lambda: FixedChain(3),
    "fixed_tree": lambda: FixedTree(nodes=12, branch=3),
    "static_widths": lambda: FixedTree(widths=[3, 2]),
    "static_branching": lambda: FixedTree(branching=[2, 2]),
    "tuned_chain": TunedChain,
    "batch_schedule": lambda: BatchSchedule([[1, 1, 3], [2, 2, 0], [3, 12, 2], [13, None, 0]]),
    "cast": lambda: Cast(width=15, nodes_per_request=3, max_nodes_per_request=9),
    "cast_all": lambda: Cast(width=4, nodes_per_request=40, max_nodes_per_request=12),
    "cast_one": lambda: Cast(width=4, nodes_per_request=1, max_nodes_per_request=2),
    "treespark": lambda: TreeSpark(nodes=20, branch=4),
    "treespark_arms": lambda: TreeSpark(
        nodes=9, branch=3, ladder=(*LADDER, {"max_batch": None, "arm": "chain"})
    ),
    "treespark_low": lambda: TreeSpark(
        nodes=30, branch=4, ladder=[{"max_batch": None, "theta": 0.00005}]
    ),
    "treespark_high": lambda: TreeSpark(
        nodes=20, branch=4, ladder=[{"max_batch": None, "theta": 0.24}]
    ),
    "ddtree": lambda: DDTree(nodes=9),
    "eagle2": lambda: Eagle2(top_k=3, depth=3, nodes=10),
    "opt_tree": lambda: OptTree(nodes=8, min_gain=0.1, depth=4),
    "pctree": lambda: PCTree(k=2, packed_tokens=8),
    "sequoia": lambda: Sequoia(nodes=12, branch=4),
    "priced_survival": lambda: PricedSurvival(nodes=20, nodes_alone=30, branch=4),
    "priced_ratio": lambda: PricedSurvival(price="ratio", nodes=12, branch=3, skip=False),
    "priced_lambda": lambda: PricedSurvival(price="lambda", nodes=9, branch=4, max_step_ms=9.0),
}
HOST = HostOverhead(
    round_s=0.0007,
    node_s=0.00003,
    tree_step_s=0.0004,
    plain_s=0.0003,
    request_s=0.0001,
    ordered_node_s=0.00001,
    plain_request_s=0.00002,
    fed_step_s=0.00013,
    catch_up_token_s=0.00017,
    tree_request_s=0.00019,
    kv_move_token_s=0.000007,
    bubble_s=0.00011,
    launch_s=0.009,
)


def cost_of(profile: str = "b300", **settings) -> StepCost:
    return StepCost(find_profile(profile), **settings)


def tables_of(recording: Recording):
    return cache(lambda order: build_order(order, recording))


def fitted(policy: Policy, recording: Recording, cost: StepCost, capacity: int, tables) -> Policy:
    fit(policy, recording, cost, capacity, tables)
    return policy


def serve_both(
    recording: Recording, policy: Policy, cost: StepCost, tables=None, chunk=1, **load
) -> tuple[Facts, Facts]:
    """Facts of the ordinary and of the compiled server; near-threshold counts are compared here.

    chunk: rounds of a compiled chunk; few, so that chunks and blocks end everywhere.
    """
    settings, tables = Settings(**load), tables or tables_of(recording)
    every = np.arange(recording.num_sequences)
    facts, near = [], []
    for compiled in (False, True):
        workload = make_workload(settings, recording, every)
        ledger = Ledger(workload)
        fitted(policy, recording, cost, settings.capacity, tables)
        policy.near_threshold = 0
        parts = (policy, recording, cost, workload, settings.capacity, tables, ledger)
        if compiled:
            assert eligible(settings, workload, policy, cost)
            times = arrival_times(settings, workload)
            FastServer(*parts, arrival_s=times, chunk=chunk).run()
        else:
            Fleet(simpy.Environment(), *parts, settings.server).run()
        facts.append(ledger.facts())
        near.append(policy.near_threshold)
    assert near[0] == near[1]
    return facts[0], facts[1]


def assert_equal(one: Facts, other: Facts) -> None:
    """Every column of every table, to the last bit."""
    for name in ("requests", "steps", "rounds"):
        first, second = getattr(one, name), getattr(other, name)
        assert first.keys() == second.keys()
        for column, values in first.items():
            assert values.dtype == second[column].dtype, column
            assert np.array_equal(values, second[column]), f"{name}.{column}"
    assert one.concurrency == other.concurrency
