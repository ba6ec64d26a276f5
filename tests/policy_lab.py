"""What policy tests share: small recordings, labs, steps, and a tree grown from raw scores."""

from __future__ import annotations

import numpy as np

from simulator.cost import StepCost, find_profile
from simulator.orders.build import build_order
from simulator.policy import Draft, Lab, Load, Policy, Step
from tests.synthetic import make_hidden, make_pool
from traces.recordings.recording import Recording

DEPTHS = 7


def make_recording(kind: str) -> Recording:
    rng = np.random.default_rng(5)
    make = {"pool": make_pool, "hidden": make_hidden}[kind]
    return make(rng, depths=DEPTHS, lengths=[12] * 9, sequences=9)


def make_lab(recording: Recording, profile: str = "b300", max_batch: int = 16) -> Lab:
    tables = {}

    def table(spec):
        if spec not in tables:
            tables[spec] = build_order(spec, recording)
        return tables[spec]

    cost = StepCost(find_profile(profile))
    return Lab(recording=recording, cost=cost, max_batch=max_batch, context=8192, table=table)


def make_load(batch: int) -> Load:
    counts = np.full(batch, 9)
    requests = np.arange(batch)
    return Load(0.0, batch, 0, batch, context=counts, remaining=counts, request=requests)


def make_step(lab: Lab, order, anchors: np.ndarray) -> Step:
    table = lab.table(order)
    draft = Draft(
        table.score[anchors], table.depth[anchors], table.parent[anchors], table.size[anchors]
    )
    return Step(make_load(len(anchors)), draft, order, lab.cost)


def hand_step(probabilities, batch_order=None) -> Step:
    """A step whose draft has these (B, M) survivals, all at depth 1."""
    score = np.log(np.array(probabilities))
    depth, parent = np.ones(score.shape, np.uint8), np.full(score.shape, -1, np.int16)
    draft = Draft(score, depth, parent, np.full(len(score), score.shape[1]))
    return Step(make_load(len(score)), draft, batch_order, cost=None)


def prepared(policy: Policy, lab: Lab) -> Policy:
    policy.prepare(lab)
    return policy
